// How accesses are decoded, and which register makes an instruction access another place.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "races/decode.h"

namespace multigrain::races {
namespace {

constexpr greg_t kBase = 0x200000001000;

// The registers are an array, which no function can return.
struct Now {
  Registers made{};
  Now();
  greg_t& operator[](int i) { return made[i]; }
};
Now::Now() {
  made[REG_RAX] = kBase;
  made[REG_RBX] = kBase + 0x100;
  made[REG_RCX] = 3;
  made[REG_RDX] = 7;
  made[REG_RSI] = kBase + 0x200;
  made[REG_RDI] = kBase + 0x300;
  made[REG_RSP] = 0x7fff0000;
  made[REG_RIP] = 0x401000;
}

DecodedInstruction decoded(std::initializer_list<uint8_t> bytes) {
  std::vector<uint8_t> code(bytes);
  DecodedInstruction result;
  EXPECT_TRUE(decode_instruction(Now().made, code.data(), code.size(), result));
  EXPECT_EQ(result.length, code.size());
  return result;
}

void expect(const MemoryAccess& access, greg_t address, uint32_t bytes, bool reads, bool writes) {
  EXPECT_EQ(access.address, static_cast<uint64_t>(address));
  EXPECT_EQ(access.bytes, bytes);
  EXPECT_EQ(access.reads, reads);
  EXPECT_EQ(access.writes, writes);
}

TEST(Decode, ALoadIntoAnotherRegister) {
  const auto it = decoded({0x48, 0x8b, 0x50, 0x08});  // mov rdx, [rax+8]
  ASSERT_EQ(it.count, 1);
  expect(it.access[0], kBase + 8, 8, true, false);
  EXPECT_EQ(it.access[0].base, REG_RAX);
  EXPECT_FALSE(it.access[0].base_is_result);
}

TEST(Decode, ALoadIntoItsOwnRegister) {
  const auto it = decoded({0x48, 0x8b, 0x00});  // mov rax, [rax]
  expect(it.access[0], kBase, 8, true, false);
  EXPECT_EQ(it.access[0].base, REG_RAX);
  EXPECT_TRUE(it.access[0].base_is_result);
}

TEST(Decode, ALoadIntoAPartOfItsOwnRegisterMovesNone) {
  const auto it = decoded({0x8a, 0x00});  // mov al, [rax]
  expect(it.access[0], kBase, 1, true, false);
  EXPECT_EQ(it.access[0].base, -1);
}

TEST(Decode, AStoreOfItsOwnRegisterMovesNone) {
  const auto it = decoded({0x48, 0x89, 0x00});  // mov [rax], rax
  expect(it.access[0], kBase, 8, false, true);
  EXPECT_EQ(it.access[0].base, -1);
}

TEST(Decode, AStoreOfItsBaseMovesTheIndex) {
  const auto it = decoded({0x48, 0x89, 0x04, 0xc8});  // mov [rax+rcx*8], rax
  expect(it.access[0], kBase + 24, 8, false, true);
  EXPECT_EQ(it.access[0].base, REG_RCX);
  EXPECT_EQ(it.access[0].scale, 8);
}

TEST(Decode, AnAdditionToItsOwnRegisterMovesNone) {
  EXPECT_EQ(decoded({0x48, 0x03, 0x00}).access[0].base, -1);  // add rax, [rax]
}

TEST(Decode, AnAdditionInMemoryReadsAndWrites) {
  expect(decoded({0x48, 0x83, 0x00, 0x01}).access[0], kBase, 8, true, true);        // add qword [rax], 1
  expect(decoded({0xf0, 0x48, 0x0f, 0xc1, 0x10}).access[0], kBase, 8, true, true);  // lock xadd [rax], rdx
}

TEST(Decode, Vectors) {
  expect(decoded({0x0f, 0x10, 0x00}).access[0], kBase, 16, true, false);                      // movups xmm0, [rax]
  expect(decoded({0xc5, 0xfe, 0x7f, 0x43, 0x20}).access[0], kBase + 0x120, 32, false, true);  // vmovdqu [rbx+32], ymm0
  expect(decoded({0xf2, 0x0f, 0x58, 0x00}).access[0], kBase, 8, true, false);                 // addsd xmm0, [rax]
}

TEST(Decode, AddressesRelativeToTheInstruction) {
  const auto it = decoded({0x48, 0x8b, 0x05, 0x10, 0x00, 0x00, 0x00});  // mov rax, [rip+16]
  expect(it.access[0], 0x401000 + 7 + 16, 8, true, false);
  EXPECT_EQ(it.access[0].base, -1);
}

TEST(Decode, StringInstructionsHaveTwo) {
  const auto it = decoded({0xf3, 0xa4});  // rep movsb
  ASSERT_EQ(it.count, 2);
  for (const MemoryAccess& access : it.access) {
    EXPECT_EQ(access.bytes, 1u);
    EXPECT_FALSE(access.base_is_result);
    EXPECT_EQ(access.base, access.writes ? REG_RDI : REG_RSI);
    EXPECT_EQ(access.address, static_cast<uint64_t>(kBase + (access.writes ? 0x300 : 0x200)));
  }
}

TEST(Decode, APushReadsOnlyItsOperand) {
  const auto it = decoded({0xff, 0x30});  // push [rax]
  ASSERT_EQ(it.count, 1);
  expect(it.access[0], kBase, 8, true, false);
}

TEST(Decode, WhatIsNotUnderstood) {
  DecodedInstruction result;
  const auto fails = [&](std::vector<uint8_t> code) {
    return !decode_instruction(Now().made, code.data(), code.size(), result);
  };
  EXPECT_TRUE(fails({0xc4, 0xe2, 0xf5, 0x90, 0x04, 0xd0}));  // vpgatherdq ymm0, [rax+xmm2*8], ymm1
  EXPECT_TRUE(fails({0xc4, 0xe2, 0x75, 0x2e, 0x00}));        // vmaskmovps [rax], ymm1, ymm0
  EXPECT_TRUE(fails({0x62, 0xf1, 0xfe, 0x4b, 0x7f, 0x00}));  // vmovdqu64 [rax]{k3}, zmm0
  EXPECT_TRUE(fails({0x48}));                                // nothing whole
  EXPECT_TRUE(fails({0x48, 0x01, 0xd8}));                    // add rax, rbx
}

TEST(Registers, AreMovedAndMovedBack) {
  const std::array<uint64_t, 2> distance{uint64_t{1} << 44, 0};
  Now now;
  const auto load = decoded({0x48, 0x8b, 0x50, 0x08});
  move_registers(now.made, load, distance);
  EXPECT_EQ(now[REG_RAX], kBase + (greg_t{1} << 44));
  Registers moved;
  std::copy(std::begin(now.made), std::end(now.made), std::begin(moved));
  now[REG_RDX] = 99;
  move_registers_back(now.made, load, distance, moved, true);
  EXPECT_EQ(now[REG_RAX], kBase);
  EXPECT_EQ(now[REG_RDX], 99);
}

TEST(Registers, AResultStays) {
  const std::array<uint64_t, 2> distance{uint64_t{1} << 44, 0};
  Now now;
  const auto load = decoded({0x48, 0x8b, 0x00});
  move_registers(now.made, load, distance);
  Registers moved;
  std::copy(std::begin(now.made), std::end(now.made), std::begin(moved));
  now[REG_RAX] = 5;
  move_registers_back(now.made, load, distance, moved, true);
  EXPECT_EQ(now[REG_RAX], 5);
  // An instruction that had no effect has no result.
  std::copy(std::begin(moved), std::end(moved), std::begin(now.made));
  move_registers_back(now.made, load, distance, moved, false);
  EXPECT_EQ(now[REG_RAX], kBase);
}

TEST(Registers, AnIndexMovesByItsScale) {
  const std::array<uint64_t, 2> distance{uint64_t{1} << 44, 0};
  Now now;
  const auto store = decoded({0x48, 0x89, 0x04, 0xc8});
  move_registers(now.made, store, distance);
  EXPECT_EQ(now[REG_RCX], 3 + (greg_t{1} << 41));
}

}  // namespace
}  // namespace multigrain::races
