// These tests check which instructions before a system call are a call site, and what becomes of them.
#include "guest/call_sites.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace multigrain::guest {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kAll = PROT_READ | PROT_WRITE | PROT_EXEC;
constexpr int kCode = PROT_READ | PROT_EXEC;

// This is code on a page of its own, with instructions that do nothing before it.
class Page {
 public:
  Page() : begin_(static_cast<uint8_t*>(mmap(nullptr, kPageSize, kAll, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::fill_n(begin_, kPageSize, uint8_t{0x90});
  }
  ~Page() { munmap(begin_, kPageSize); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  // Puts the code there, and returns the address of the `syscall` that ends it.
  uint64_t put(size_t offset, const Bytes& code) {
    std::ranges::copy(code, begin_ + offset);
    return address(offset + code.size() - CallSites::kSyscall);
  }
  [[nodiscard]] uint64_t address(size_t offset) const { return reinterpret_cast<uint64_t>(begin_) + offset; }
  [[nodiscard]] Bytes bytes(uint64_t at, size_t count) const {
    const auto* const first = begin_ + (at - address(0));
    return {first, first + count};
  }
  void protect(int rights) { mprotect(begin_, kPageSize, rights); }

 private:
  uint8_t* begin_;
};

TEST(CallSites, AreAConstantAndACall) {
  Page page;
  const uint64_t call = page.put(100, {0xb8, 39, 0, 0, 0, 0x0f, 0x05});
  EXPECT_EQ(CallSites::bytes_before(call, 39), CallSites::kMov);
  // Another path brought another number here, with the whole register or a part of it.
  EXPECT_EQ(CallSites::bytes_before(call, 38), 0u);
  EXPECT_EQ(CallSites::bytes_before(call, (uint64_t{1} << 32) + 39), 0u);
  const uint64_t read = page.put(200, {0x31, 0xc0, 0x0f, 0x05});
  EXPECT_EQ(CallSites::bytes_before(read, 0), CallSites::kXor);
  EXPECT_EQ(CallSites::bytes_before(read, 1), 0u);
  // rt_sigreturn() is recognised by its bytes, by unwinders.
  EXPECT_EQ(CallSites::bytes_before(page.put(300, {0xb8, 15, 0, 0, 0, 0x0f, 0x05}), 15), 0u);
}

TEST(CallSites, AreNotOtherInstructionsWithTheSameBytes) {
  for (const Bytes& code : std::initializer_list<Bytes>{
           {0x41, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                             // mov $39,%r8d
           {0xc7, 0x45, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // movl $39,-72(%rbp)
           {0xc7, 0x44, 0x24, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                 // movl $39,-72(%rsp)
           {0xc7, 0x04, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // movl $39,(%rax,%rdi,4)
           {0x81, 0x7d, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // cmpl $39,-72(%rbp)
           {0x69, 0x45, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // imul $39,-72(%rbp),%eax
           {0xf7, 0x45, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // testl $39,-72(%rbp)
           {0xc7, 0x85, 0, 0xff, 0xff, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},        // movl with 32 bits of displacement
           {0xc7, 0x05, 0, 0, 0, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},              // relative to rip
           {0xc7, 0x84, 0x24, 0, 0xff, 0xff, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},  // to rsp
           {0x48, 0x8d, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // lea 39(%rax),%rdi
           {0x64, 0x8b, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // mov %fs:39(%rax),%edi
           {0x64, 0x48, 0x8b, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                 // the same with 64 bits
           {0x0f, 0x1f, 0xb8, 39, 0, 0, 0, 0x0f, 0x05},                       // nopl 39(%rax)
           {0xb8, 39, 0, 0, 0, 0x90, 0x0f, 0x05},                             // something between
           {0xb8, 39, 0, 0, 0, 0x0f, 0x34}}) {                                // sysenter
    Page page;
    EXPECT_EQ(CallSites::bytes_before(page.put(100, code), 39), 0u) << testing::PrintToString(code);
  }
  for (const Bytes& code : std::initializer_list<Bytes>{{0x45, 0x31, 0xc0, 0x0f, 0x05},              // xor %r8d,%r8d
                                                        {0x66, 0x31, 0xc0, 0x0f, 0x05},              // xor %ax,%ax
                                                        {0xc4, 0xe2, 0x79, 0x31, 0xc0, 0x0f, 0x05},  // vpmovzxbd
                                                        {0x66, 0x0f, 0x38, 0x31, 0xc0, 0x0f, 0x05},  // pmovzxbd
                                                        {0x33, 0xc0, 0x0f, 0x05}}) {
    Page page;
    EXPECT_EQ(CallSites::bytes_before(page.put(100, code), 0), 0u) << testing::PrintToString(code);
  }
}

class ChangedSites : public testing::Test {
 protected:
  ChangedSites() { sites_.add_arena(arena()); }
  ~ChangedSites() override { munmap(reinterpret_cast<void*>(arena()), CallSites::kArenaBytes); }

  // The arena is in reach of everything that is mapped near it.
  [[nodiscard]] uint64_t arena() const { return reinterpret_cast<uint64_t>(arena_); }

  void* arena_ = mmap(nullptr, CallSites::kArenaBytes, kAll, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Page page_;
  CallSites sites_;
};

int64_t distance_of(const Bytes& jump) {
  int32_t distance = 0;
  std::memcpy(&distance, jump.data() + 1, sizeof distance);
  return distance;
}

TEST_F(ChangedSites, JumpToTheirStubAndBecomeWhatTheyWere) {
  const Bytes original{0xb8, 39, 0, 0, 0, 0x0f, 0x05};
  const uint64_t call = page_.put(100, original);
  const uint64_t site = page_.address(100);
  page_.protect(kCode);
  ASSERT_TRUE(sites_.has_room_near(call));
  ASSERT_TRUE(sites_.change(call, 39, kCode));
  const Bytes changed = page_.bytes(site, original.size());
  EXPECT_EQ(changed[0], 0xe9);
  // The call itself stays.
  EXPECT_EQ(Bytes(changed.end() - 2, changed.end()), Bytes(original.end() - 2, original.end()));
  const uint64_t stub = call + static_cast<uint64_t>(distance_of(changed));
  EXPECT_GE(stub, arena());
  EXPECT_LT(stub, arena() + CallSites::kArenaBytes);
  const CallSite* const known = sites_.site_of_stub(stub);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->next, call + CallSites::kSyscall);
  EXPECT_EQ(known->number, 39u);
  // A thread that it stops goes on at the call.
  gregset_t registers{};
  registers[REG_RIP] = static_cast<greg_t>(site);
  EXPECT_TRUE(sites_.step_over(registers));
  EXPECT_EQ(registers[REG_RIP], static_cast<greg_t>(call));
  EXPECT_EQ(registers[REG_RAX], 39);
  EXPECT_FALSE(sites_.step_over(registers));

  sites_.restore({page_.address(0), page_.address(kPageSize)}, kCode);
  EXPECT_EQ(page_.bytes(site, original.size()), original);
  registers[REG_RIP] = static_cast<greg_t>(site);
  EXPECT_TRUE(sites_.step_over(registers));
  // The same site has the same stub.
  ASSERT_TRUE(sites_.change(call, 39, kCode));
  EXPECT_EQ(page_.bytes(site, original.size()), changed);
  // A page that was replaced has nothing that could be restored.
  sites_.forget({page_.address(0), page_.address(kPageSize)});
  page_.protect(kAll);
  page_.put(100, {0xb8, 40, 0, 0, 0, 0x0f, 0x05});
  sites_.restore({page_.address(0), page_.address(kPageSize)}, kCode);
  EXPECT_EQ(page_.bytes(site, 2), (Bytes{0xb8, 40}));
  registers[REG_RIP] = static_cast<greg_t>(site);
  EXPECT_FALSE(sites_.step_over(registers));
}

TEST_F(ChangedSites, TheShortOnesHopThroughTheSpaceBetweenFunctions) {
  const Bytes function{0x31, 0xc0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x77, 0x20,
                       0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0,    0,    0,    0};
  page_.put(105, function);
  page_.put(180, {0x31, 0xc0, 0x0f, 0x05});
  page_.put(220, {0x31, 0xc0, 0x0f, 0x05});
  page_.put(2000, {0x31, 0xc0, 0x0f, 0x05});
  page_.protect(kCode);
  const auto call_at = [this](size_t offset) { return page_.address(offset + CallSites::kXor); };
  ASSERT_TRUE(sites_.change(call_at(105), 0, kCode));
  ASSERT_TRUE(sites_.change(call_at(180), 0, kCode));
  // The space has room for two stubs. A call that is too far away for a short jump has none.
  EXPECT_FALSE(sites_.change(call_at(220), 0, kCode));
  EXPECT_FALSE(sites_.change(call_at(2000), 0, kCode));
  for (const size_t offset : {105, 180}) {
    const Bytes jump = page_.bytes(page_.address(offset), 4);
    EXPECT_EQ(jump[0], 0xeb);
    EXPECT_EQ(jump[2], 0x0f);
    const uint64_t hop = call_at(offset) + static_cast<uint64_t>(static_cast<int8_t>(jump[1]));
    EXPECT_EQ(hop, page_.address(offset == 105 ? 118 : 123));
    const uint64_t stub = hop + CallSites::kMov + static_cast<uint64_t>(distance_of(page_.bytes(hop, CallSites::kMov)));
    const CallSite* const site = sites_.site_of_stub(stub);
    ASSERT_NE(site, nullptr);
    EXPECT_EQ(site->next, call_at(offset) + CallSites::kSyscall);
    EXPECT_EQ(sites_.site_of_stub(hop), site);
  }
  EXPECT_EQ(page_.bytes(page_.address(220), 2), (Bytes{0x31, 0xc0}));
  sites_.restore({page_.address(0), page_.address(kPageSize)}, kCode);
  EXPECT_EQ(page_.bytes(page_.address(105), 13), Bytes(function.begin(), function.begin() + 13));
  // A restored site finds its hop again.
  EXPECT_TRUE(sites_.change(call_at(105), 0, kCode));
  EXPECT_EQ(page_.bytes(page_.address(105), 2), (Bytes{0xeb, 11 - 2 + 2}));
}

TEST_F(ChangedSites, HaveNoHopWhereAFunctionMayBegin) {
  const Bytes function{0x31, 0xc0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x77, 0x20, 0xc3};
  page_.put(105, function);  // single bytes that do nothing follow
  page_.put(305, function);
  page_.put(318, {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 1});  // not what it seems
  page_.put(512 - 13, function);
  page_.put(512, {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0});  // where alignment needs none
  page_.protect(kCode);
  for (const size_t offset : {105, 305, 512 - 13})
    EXPECT_FALSE(sites_.change(page_.address(offset + CallSites::kXor), 0, kCode)) << offset;
}

TEST(Arrivals, CountPlacesThatFallTogetherFromOneAgain) {
  const auto arrivals = std::make_unique<Arrivals>();
  const auto until_often = [&arrivals](uint64_t call) {
    int count = 1;
    while (count < 1000 && !arrivals->is_often(call)) ++count;
    return count;
  };
  const int often = until_often(0x1000);
  EXPECT_GT(often, 1);
  EXPECT_LT(often, 17);
  arrivals->start_again(0x1000);
  EXPECT_EQ(until_often(0x1000), often);
  arrivals->set_unchangeable(0x1000);
  EXPECT_EQ(until_often(0x1000), 1000);
}

}  // namespace
}  // namespace multigrain::guest
