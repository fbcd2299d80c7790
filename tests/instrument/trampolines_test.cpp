// The entries that checks call when they miss keep every register but r11 and the result's, whatever vectors the
// program uses and whatever the runtime does to them.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "fake_line_protocol.h"

namespace multigrain::testing {
namespace {

// This says which registers a program uses.
enum Vectors : unsigned { kXmm, kYmm, kZmm };

struct alignas(64) Registers {
  std::array<std::array<uint64_t, 8>, 32> vector;
  std::array<uint64_t, 8> mask;     // at 2048
  std::array<uint64_t, 8> general;  // at 2112: rdx, rcx, r8, r9, r10, rbx, mxcsr
};
static_assert(offsetof(Registers, general) == 2112);

}  // namespace

// This is a variable of the trampolines: 0 makes them keep registers by xsave.
extern "C" uint8_t multigrain_keep_by_moves;

// Loads the registers from `in`, calls `entry(address, 8)` and stores them to `out`. Returns what the entry returned.
extern "C" uint64_t multigrain_test_call(const void* entry, const void* address, const Registers* in, Registers* out,
                                         unsigned vectors);
asm(R"(
.altmacro
.macro MULTIGRAIN_TEST_LOAD verb register i
  \verb 64 * \i(%r12), %\register\()\i
.endm
.macro MULTIGRAIN_TEST_STORE verb register i
  \verb %\register\()\i, 64 * \i(%r13)
.endm
.macro MULTIGRAIN_TEST_ALL how verb register first last
  .set number, \first
  .rept \last - \first + 1
  MULTIGRAIN_TEST_\how \verb, \register, %number
  .set number, number + 1
  .endr
.endm
.macro MULTIGRAIN_TEST_MASKS to_memory
  .irp i, 0, 1, 2, 3, 4, 5, 6, 7
  .if \to_memory
  kmovq %k\i, 2048 + 8 * \i(%r13)
  .else
  kmovq 2048 + 8 * \i(%r12), %k\i
  .endif
  .endr
.endm
  .text
  .type multigrain_test_call, @function
  .globl multigrain_test_call
multigrain_test_call:
  pushq %rbp
  movq %rsp, %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $24, %rsp
  movq %rdi, %r15
  movq %rsi, %rdi
  movq %rdx, %r12
  movq %rcx, %r13
  movl %r8d, %r14d
  stmxcsr -48(%rbp)
  ldmxcsr 2112 + 48(%r12)
  cmpl $1, %r14d
  jb 1f
  ja 2f
  MULTIGRAIN_TEST_ALL LOAD, vmovaps, ymm, 0, 15
  jmp 3f
1:
  MULTIGRAIN_TEST_ALL LOAD, movaps, xmm, 0, 15
  jmp 3f
2:
  MULTIGRAIN_TEST_ALL LOAD, vmovaps, zmm, 0, 31
  MULTIGRAIN_TEST_MASKS 0
3:
  movl $8, %esi
  movq 2112(%r12), %rdx
  movq 2112 + 8(%r12), %rcx
  movq 2112 + 16(%r12), %r8
  movq 2112 + 24(%r12), %r9
  movq 2112 + 32(%r12), %r10
  movq 2112 + 40(%r12), %rbx
  call *%r15
  movq %rdx, 2112(%r13)
  movq %rcx, 2112 + 8(%r13)
  movq %r8, 2112 + 16(%r13)
  movq %r9, 2112 + 24(%r13)
  movq %r10, 2112 + 32(%r13)
  movq %rbx, 2112 + 40(%r13)
  stmxcsr 2112 + 48(%r13)
  ldmxcsr -48(%rbp)
  cmpl $1, %r14d
  jb 1f
  ja 2f
  MULTIGRAIN_TEST_ALL STORE, vmovaps, ymm, 0, 15
  vzeroupper
  jmp 3f
1:
  MULTIGRAIN_TEST_ALL STORE, movaps, xmm, 0, 15
  jmp 3f
2:
  MULTIGRAIN_TEST_ALL STORE, vmovaps, zmm, 0, 31
  MULTIGRAIN_TEST_MASKS 1
  vzeroupper
3:
  leaq -40(%rbp), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size multigrain_test_call, . - multigrain_test_call
.noaltmacro
)");

namespace {

[[gnu::target("avx512f,avx512bw")]] void spoil_avx512() {
  asm volatile(
      "vpternlogd $255, %%zmm0, %%zmm0, %%zmm0\n vpternlogd $255, %%zmm16, %%zmm16, %%zmm16\n"
      "vpternlogd $255, %%zmm31, %%zmm31, %%zmm31\n kxnorq %%k1, %%k1, %%k1\n kxnorq %%k7, %%k7, %%k7\n vzeroall" ::
          : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
            "xmm13", "xmm14", "xmm15", "memory");
}

[[gnu::target("avx")]] void spoil_avx() {
  asm volatile("vcmpps $15, %%ymm3, %%ymm3, %%ymm3\n vzeroall" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15", "memory");
}

bool has(Vectors vectors) {
  switch (vectors) {
    case kXmm:
      return true;
    case kYmm:
      return __builtin_cpu_supports("avx") != 0;
    case kZmm:
      break;
  }
  return __builtin_cpu_supports("avx512bw") != 0;
}

class Spoiling : public FakeLineProtocol {
 public:
  using FakeLineProtocol::FakeLineProtocol;
  void load(uintptr_t address, std::span<std::byte> out) override {
    FakeLineProtocol::load(address, out);
    if (has(kZmm))
      spoil_avx512();
    else if (has(kYmm))
      spoil_avx();
    else
      asm volatile("xorps %%xmm0, %%xmm0\n xorps %%xmm15, %%xmm15" ::: "xmm0", "xmm15");
    _mm_setcsr(_mm_getcsr() | _MM_EXCEPT_MASK);
  }
};

void expect_registers_kept() {
  Spoiling protocol(4096, 6);
  std::thread([&] {
    protocol.join();
    unsigned char* const address = protocol.memory() + 1024;
    std::mt19937_64 random(1);
    for (const Vectors vectors : {kXmm, kYmm, kXmm, kZmm, kYmm, kXmm}) {
      if (!has(vectors)) continue;
      Registers in, out;
      for (auto& vector : in.vector)
        for (uint64_t& word : vector) word = random();
      for (uint64_t& word : in.mask) word = random();
      for (uint64_t& word : in.general) word = random();
      in.general[6] = in.general[7] = _MM_MASK_MASK;  // no exception has happened
      out = in;
      const uint64_t value = random();
      __multigrain_store(address, sizeof value, &value);
      protocol.take_away(reinterpret_cast<uintptr_t>(address));
      const uint64_t misses = protocol.misses();
      for (auto& vector : out.vector) vector.fill(0);
      EXPECT_EQ(
          multigrain_test_call(reinterpret_cast<const void*>(&__multigrain_load_miss), address, &in, &out, vectors),
          value);
      EXPECT_GT(protocol.misses(), misses);
      EXPECT_EQ(in.general, out.general) << "vectors " << vectors;
      EXPECT_EQ(in.mask, out.mask) << "vectors " << vectors;
      const size_t words = vectors == kXmm ? 2 : vectors == kYmm ? 4 : 8;
      for (size_t i = 0; i < (vectors == kZmm ? 32 : 16); ++i)
        EXPECT_EQ(std::memcmp(&in.vector[i], &out.vector[i], words * 8), 0) << "vectors " << vectors << ", " << i;
    }
  }).join();
}

TEST(Trampolines, KeepRegisters) {
  expect_registers_kept();
}

TEST(Trampolines, KeepRegistersOfAProcessorThatDoesNotSayWhichAreInUse) {
  const uint8_t before = std::exchange(multigrain_keep_by_moves, uint8_t{0});
  expect_registers_kept();
  multigrain_keep_by_moves = before;
}

}  // namespace
}  // namespace multigrain::testing
