// Instructions are executed twice: by the processor on memory that is there, and by the handler of their faults on memory that is
// somewhere else (coherence/placement/instructions). Registers, flags, vectors and memory have to be the same afterwards.
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "coherence/placement/instructions/execute.h"

namespace multigrain::placement {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 3 * kPage;

// Memory of which the addresses are here, and the bytes elsewhere.
class Elsewhere final : public Operands {
 public:
  Elsewhere() {
    at_ = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(at_, MAP_FAILED);
    auto executor = Executor::create(&decode_instruction);
    EXPECT_TRUE(executor) << executor.error().message;
    executor_ = std::make_unique<Executor>(std::move(*executor));
    current_ = this;
    struct sigaction action = {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before_);
  }
  ~Elsewhere() override {
    sigaction(SIGSEGV, &before_, nullptr);
    current_ = nullptr;
    munmap(at_, kBytes);
  }

  [[nodiscard]] std::byte* at() const { return at_; }
  std::array<std::byte, kBytes>& bytes() { return bytes_; }
  [[nodiscard]] unsigned executed() const { return executed_; }

  // Calls the function. Returns what the executor has said of an instruction that it did not execute, or else kDone.
  template <typename Function>
  Executed run(Function&& function) {
    refused_ = Executed::kDone;
    if (sigsetjmp(jump_, 1) == 0) function();
    return refused_;
  }

  bool load(uint64_t address, std::span<std::byte> out) override {
    if (is_gone(address, out.size())) return false;
    std::memcpy(out.data(), place(address), out.size());
    return true;
  }
  bool store(uint64_t address, std::span<const std::byte> bytes) override {
    if (is_gone(address, bytes.size())) return false;
    std::memcpy(place(address), bytes.data(), bytes.size());
    return true;
  }
  bool compare_and_swap(uint64_t address, uint64_t& expected, uint64_t desired) override {
    if (is_gone(address, sizeof expected)) return false;
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(place(address))).compare_exchange_strong(expected, desired);
    return true;
  }
  // From now on nothing is there but the first bytes.
  void end_at(uint64_t bytes) { end_ = bytes; }
  void take_away() { end_at(0); }

 private:
  static void on_signal(int, siginfo_t* info, void* context) {
    Elsewhere& self = *current_;
    const auto* const address = static_cast<std::byte*>(info->si_addr);
    if (address < self.at_ || address >= self.at_ + kBytes) {
      signal(SIGSEGV, SIG_DFL);
      return;
    }
    const Executed executed = self.executor_->execute(*static_cast<ucontext_t*>(context), self);
    self.executed_.fetch_add(1, std::memory_order_relaxed);
    if (executed == Executed::kDone) return;
    self.refused_ = executed;
    siglongjmp(self.jump_, 1);
  }
  [[nodiscard]] bool is_here(uint64_t address) const { return address - reinterpret_cast<uint64_t>(at_) < kBytes; }
  [[nodiscard]] bool is_gone(uint64_t address, size_t size) const {
    return is_here(address) && address + size > reinterpret_cast<uint64_t>(at_) + end_;
  }
  [[nodiscard]] std::byte* place(uint64_t address) {
    return is_here(address) ? bytes_.data() + (address - reinterpret_cast<uint64_t>(at_))
                            : reinterpret_cast<std::byte*>(address);
  }

  static inline Elsewhere* current_ = nullptr;
  std::byte* at_ = nullptr;
  alignas(64) std::array<std::byte, kBytes> bytes_{};
  std::unique_ptr<Executor> executor_;
  std::atomic<unsigned> executed_{0};
  std::atomic<uint64_t> end_{kBytes};
  Executed refused_ = Executed::kDone;
  sigjmp_buf jump_{};
  struct sigaction before_ = {};
};

// What an instruction finds in the registers, and leaves there. `rdi` and `rsi` are relative to the memory.
struct State {
  uint64_t rax = 0, rcx = 0, rdx = 0, rdi = 0, rsi = 0, r9 = 0, flags = 0;
  alignas(32) std::array<std::array<uint64_t, 4>, 3> ymm{};
  bool operator==(const State&) const = default;
};

enum class Needs : uint8_t { kNothing, kAvx, kAvx2, kAvx512 };

struct Case {
  const char* text;
  Needs needs;
  void (*execute)(std::byte* memory, State& state);
};

// rdi points to the operand, rsi to a kilobyte further on. The red zone of the function is left alone.
#define CASE_OF(vectors_in, text, vectors_out)                                                                    \
  [](std::byte* memory, State& state) {                                                                           \
    auto* to = memory + state.rdi;                                                                                \
    auto* from = memory + state.rsi;                                                                              \
    register uint64_t r9 asm("r9") = state.r9;                                                                    \
    register uint64_t flags asm("r10") = state.flags;                                                             \
    register void* vectors asm("r11") = state.ymm.data();                                                         \
    asm volatile("lea -256(%%rsp), %%rsp\n" vectors_in "push %%r10\npopfq\n" text                                 \
                 "\npushfq\npop %%r10\ncld\n" vectors_out "lea 256(%%rsp), %%rsp\n"                               \
                 : "+a"(state.rax), "+c"(state.rcx), "+d"(state.rdx), "+D"(to), "+S"(from), "+r"(r9), "+r"(flags) \
                 : "r"(vectors)                                                                                   \
                 : "memory", "cc", "xmm0", "xmm1", "xmm2", "r12");                                                \
    state.rdi = static_cast<uint64_t>(to - memory);                                                               \
    state.rsi = static_cast<uint64_t>(from - memory);                                                             \
    state.r9 = r9;                                                                                                \
    state.flags = flags & 0xcd5;                                                                                  \
  }
#define CASE(text)                                                                               \
  {text, Needs::kNothing,                                                                        \
   CASE_OF("movdqu (%%r11), %%xmm0\nmovdqu 32(%%r11), %%xmm1\nmovdqu 64(%%r11), %%xmm2\n", text, \
           "movdqu %%xmm0, (%%r11)\nmovdqu %%xmm1, 32(%%r11)\nmovdqu %%xmm2, 64(%%r11)\n")}
#define AVX_CASE(needs, text)                                                                       \
  {text, needs,                                                                                     \
   CASE_OF("vmovdqu (%%r11), %%ymm0\nvmovdqu 32(%%r11), %%ymm1\nvmovdqu 64(%%r11), %%ymm2\n", text, \
           "vmovdqu %%ymm0, (%%r11)\nvmovdqu %%ymm1, 32(%%r11)\nvmovdqu %%ymm2, 64(%%r11)\nvzeroupper\n")}

// A mask that has one element at least.
#define SOME_OF_YMM1 "orb $0x80, 39(%%r11)\nvmovdqu 32(%%r11), %%ymm1\n"

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // Moves, with every part of an address and every size
      CASE("mov (%%rdi), %%rax"),
      CASE("mov (%%rdi), %%eax"),
      CASE("mov (%%rdi), %%ax"),
      CASE("mov (%%rdi), %%al"),
      CASE("mov (%%rdi), %%ah"),
      CASE("mov %%rax, (%%rdi)"),
      CASE("mov %%eax, 4(%%rdi)"),
      CASE("mov %%ax, 6(%%rdi)"),
      CASE("mov %%dh, 5(%%rdi)"),
      CASE("mov %%r9b, 3(%%rdi)"),
      CASE("movb $0x5a, 9(%%rdi)"),
      CASE("movw $0x5a5a, 2(%%rdi)"),
      CASE("movl $0x12345678, 8(%%rdi)"),
      CASE("movq $-7, 16(%%rdi)"),
      CASE("and $7, %%ecx\nmov (%%rdi,%%rcx,8), %%rdx"),
      CASE("and $7, %%ecx\nmov %%r9d, 12(%%rdi,%%rcx,4)"),
      CASE("lea 8(%%rdi), %%r12\nmov (%%r12), %%rax"),
      CASE("lea 8(%%rdi), %%r12\nmov %%r9, 0x100(%%r12)"),
      CASE("mov %%rdi, %%r12\nmov (%%r12), %%r12\nmov %%r12, %%rax"),
      CASE("movzbl (%%rdi), %%eax"),
      CASE("movzwl 2(%%rdi), %%ecx"),
      CASE("movsbl 1(%%rdi), %%edx"),
      CASE("movswq 4(%%rdi), %%rax"),
      CASE("movslq 4(%%rdi), %%r9"),
      CASE("mov %%rdi, (%%rdi)\nsub %%rdi, (%%rdi)"),
      CASE("movnti %%rax, 8(%%rdi)"),
      // Arithmetic, with the flags that it reads and writes
      CASE("add (%%rdi), %%rax"),
      CASE("adc 8(%%rdi), %%ecx"),
      CASE("sub %%rax, (%%rdi)"),
      CASE("sbb %%ecx, 4(%%rdi)"),
      CASE("and %%dl, 1(%%rdi)"),
      CASE("or (%%rdi), %%r9"),
      CASE("xor %%r9w, 2(%%rdi)"),
      CASE("cmp (%%rdi), %%rax"),
      CASE("cmpl $0x1234, (%%rdi)"),
      CASE("test %%eax, (%%rdi)"),
      CASE("incq (%%rdi)"),
      CASE("decw 2(%%rdi)"),
      CASE("negl (%%rdi)"),
      CASE("notq (%%rdi)"),
      CASE("addb $3, 7(%%rdi)"),
      CASE("imul (%%rdi), %%rax"),
      CASE("imull $1000, (%%rdi), %%ecx"),
      CASE("mulq (%%rdi)"),
      CASE("shll %%cl, (%%rdi)"),
      CASE("sarq $3, (%%rdi)"),
      CASE("rolb $2, (%%rdi)"),
      CASE("shld $5, %%rdx, (%%rdi)"),
      CASE("bsr (%%rdi), %%rax"),
      CASE("btl $5, (%%rdi)"),
      CASE("btsq $40, (%%rdi)"),
      CASE("cmovc (%%rdi), %%rax"),
      CASE("setc (%%rdi)"),
      CASE("sete 1(%%rdi)"),
      CASE("xor %%edx, %%edx\nmov $1000, %%eax\norl $1, (%%rdi)\ndivl (%%rdi)"),
      // Atomics
      CASE("lock addq $5, (%%rdi)"),
      CASE("lock xaddl %%ecx, 4(%%rdi)"),
      CASE("xchg %%rax, (%%rdi)"),
      CASE("xchg %%dl, 3(%%rdi)"),
      CASE("lock cmpxchg %%rcx, (%%rdi)"),
      CASE("mov (%%rdi), %%rax\nlock cmpxchg %%rcx, (%%rdi)"),
      CASE("mov 4(%%rdi), %%eax\nlock cmpxchg %%ecx, 4(%%rdi)"),
      CASE("lock orw $1, 6(%%rdi)"),
      CASE("lock decb 1(%%rdi)"),
      CASE("lock btsl $3, (%%rdi)"),
      CASE("mov (%%rdi), %%rax\ncmpxchg %%rcx, (%%rdi)"),
      CASE("cmpxchg %%rcx, (%%rdi)"),
      // The stack, and jumps
      CASE("pushq (%%rdi)\npop %%rax"),
      CASE("push %%rcx\npopq 8(%%rdi)"),
      CASE("lea 1f(%%rip), %%rax\nmov %%rax, (%%rdi)\njmp *(%%rdi)\nud2\n1: movq $0, (%%rdi)\nxor %%eax, %%eax"),
      CASE(
          "lea 1f(%%rip), %%rax\nmov %%rax, (%%rdi)\ncall *(%%rdi)\njmp 2f\n1: mov $99, %%ecx\nret\n2: movq $0, (%%rdi)\nxor %%eax, %%eax"),
      // Strings
      CASE("movsq"),
      CASE("movsb"),
      CASE("std\nmovsl"),
      CASE("stosw"),
      CASE("lodsb"),
      CASE("lodsl"),
      CASE("cmpsb"),
      CASE("cmpsq"),
      CASE("scasb"),
      CASE("scasl"),
      CASE("mov $100, %%ecx\nrep movsb"),
      CASE("mov $700, %%ecx\nrep movsq"),
      CASE("mov $9, %%ecx\nstd\nrep movsw"),
      CASE("lea 3(%%rdi), %%rsi\nxchg %%rsi, %%rdi\nmov $50, %%ecx\nrep movsb"),
      CASE("mov $600, %%ecx\nrep stosq"),
      CASE("movb $1, (%%rdi)\nxor %%ecx, %%ecx\nrep stosb"),
      CASE("mov $20, %%ecx\nrepe cmpsb"),
      CASE("mov %%rdi, %%rsi\nmov $20, %%ecx\nrepe cmpsb"),
      CASE("mov $90, %%ecx\nmov 17(%%rdi), %%al\nrepne scasb"),
      CASE("mov $5, %%ecx\nrep lodsq"),
      // Vectors
      CASE("movdqu (%%rdi), %%xmm0"),
      CASE("movups %%xmm1, 3(%%rdi)"),
      CASE("movq (%%rdi), %%xmm0"),
      CASE("movd %%xmm1, 4(%%rdi)"),
      CASE("movsd %%xmm1, (%%rdi)"),
      CASE("movss (%%rdi), %%xmm0"),
      CASE("movhps %%xmm1, 8(%%rdi)"),
      CASE("movlpd (%%rdi), %%xmm0"),
      CASE("paddd (%%rdi), %%xmm0"),
      CASE("pxor 16(%%rdi), %%xmm1"),
      CASE("cvtsi2sdq (%%rdi), %%xmm0"),
      CASE("cvttsd2si (%%rdi), %%rax"),
      CASE("pshufd $0x1b, (%%rdi), %%xmm0"),
      CASE("pcmpeqb (%%rdi), %%xmm0\npmovmskb %%xmm0, %%eax"),
      CASE("movntdq %%xmm0, (%%rdi)"),
      CASE("pextrb $3, %%xmm0, (%%rdi)"),
      CASE("ucomisd (%%rdi), %%xmm0"),
      CASE("stmxcsr (%%rdi)\nldmxcsr (%%rdi)"),
      CASE("fildq (%%rdi)\nfistpq 8(%%rdi)"),
      CASE("fnstcw 2(%%rdi)"),
      CASE("fldl (%%rdi)\nfaddl 8(%%rdi)\nfstpt 16(%%rdi)"),
      CASE("movq (%%rdi), %%mm0\npaddb 8(%%rdi), %%mm0\nmovq %%mm0, 16(%%rdi)\nemms"),
      AVX_CASE(Needs::kAvx, "vmovdqu (%%rdi), %%ymm0"),
      AVX_CASE(Needs::kAvx, "vmovups %%ymm1, 5(%%rdi)"),
      AVX_CASE(Needs::kAvx, "vaddpd (%%rdi), %%ymm0, %%ymm1"),
      AVX_CASE(Needs::kAvx, "vbroadcastsd (%%rdi), %%ymm2"),
      AVX_CASE(Needs::kAvx, "lea 8(%%rdi), %%r12\nvmovdqu (%%r12), %%xmm0"),
      AVX_CASE(Needs::kAvx, "vmovsd %%xmm2, 8(%%rdi)"),
      AVX_CASE(Needs::kAvx2, "vpaddq (%%rdi), %%ymm1, %%ymm0"),
      AVX_CASE(Needs::kAvx2, "vpcmpeqb (%%rdi), %%ymm1, %%ymm0\nvpmovmskb %%ymm0, %%eax"),
      AVX_CASE(Needs::kAvx2, "andn (%%rdi), %%rax, %%rcx"),
      AVX_CASE(Needs::kAvx2, "shlx %%rax, (%%rdi), %%rdx"),
      AVX_CASE(Needs::kAvx2, "mov (%%rdi), %%rdx\nmulx 8(%%rdi), %%rax, %%rcx"),
      // Some elements of a vector
      AVX_CASE(Needs::kAvx, SOME_OF_YMM1 "vmaskmovps (%%rdi), %%ymm1, %%ymm0"),
      AVX_CASE(Needs::kAvx, SOME_OF_YMM1 "vmaskmovpd 8(%%rdi), %%xmm1, %%xmm0"),
      AVX_CASE(Needs::kAvx, SOME_OF_YMM1 "vmaskmovps %%ymm2, %%ymm1, (%%rdi)"),
      AVX_CASE(Needs::kAvx, SOME_OF_YMM1 "vmaskmovpd %%xmm2, %%xmm1, 4(%%rdi)"),
      AVX_CASE(Needs::kAvx, "vpcmpeqd %%xmm1, %%xmm1, %%xmm1\nvmaskmovps %%xmm2, %%xmm1, (%%rdi)"),
      AVX_CASE(Needs::kAvx2, SOME_OF_YMM1 "vpmaskmovd (%%rdi), %%ymm1, %%ymm1"),
      AVX_CASE(Needs::kAvx2, SOME_OF_YMM1 "vpmaskmovq %%ymm0, %%ymm1, 3(%%rdi)"),
      CASE("pcmpeqb %%xmm2, %%xmm2\nmaskmovdqu %%xmm2, %%xmm0"),
      CASE("orb $0x80, 39(%%r11)\nmovdqu 32(%%r11), %%xmm1\nmaskmovdqu %%xmm1, %%xmm0"),
      AVX_CASE(Needs::kAvx, "vpcmpeqb %%xmm2, %%xmm2, %%xmm2\nvmaskmovdqu %%xmm2, %%xmm0"),
      AVX_CASE(
          Needs::kAvx2,
          "vpsrad $22, %%ymm0, %%ymm0\nvpcmpeqd %%ymm1, %%ymm1, %%ymm1\nvpgatherdd %%ymm1, (%%rdi,%%ymm0,1), %%ymm2"),
      AVX_CASE(
          Needs::kAvx2,
          "vpsrad $24, %%ymm0, %%ymm0\nvorps (%%rdi), %%ymm1, %%ymm1\nvgatherdps %%ymm1, 16(%%rdi,%%ymm0,2), %%ymm2"),
      AVX_CASE(
          Needs::kAvx2,
          "vpsrlq $54, %%ymm0, %%ymm0\nvpcmpeqd %%xmm1, %%xmm1, %%xmm1\nvpgatherqd %%xmm1, (%%rdi,%%ymm0,1), %%xmm2"),
      AVX_CASE(
          Needs::kAvx2,
          "vpsrlq $58, %%xmm0, %%xmm0\nvpcmpeqd %%xmm1, %%xmm1, %%xmm1\nvgatherqps %%xmm1, 8(%%rdi,%%xmm0,8), %%xmm2"),
      AVX_CASE(
          Needs::kAvx2,
          "vpsrad $25, %%xmm0, %%xmm0\nvpcmpeqd %%ymm1, %%ymm1, %%ymm1\nvgatherdpd %%ymm1, (%%rdi,%%xmm0,4), %%ymm2"),
      AVX_CASE(Needs::kAvx2,
               "vpsrlq $55, %%ymm0, %%ymm0\nvmovdqu (%%rdi), %%ymm1\nvpgatherqq %%ymm1, (%%rdi,%%ymm0,1), %%ymm2"),
      AVX_CASE(Needs::kAvx512, "vmovdqu64 64(%%rdi), %%zmm0"),
      AVX_CASE(Needs::kAvx512, "vmovdqu64 %%zmm1, 128(%%rdi)"),
      AVX_CASE(Needs::kAvx512, "vmovdqu64 (%%rdi), %%ymm16\nvpaddq 32(%%rdi), %%ymm16, %%ymm0"),
  };
  return all;
}

bool has(Needs needs) {
  switch (needs) {
    case Needs::kNothing:
      return true;
    case Needs::kAvx:
      return __builtin_cpu_supports("avx") != 0;
    case Needs::kAvx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi2") != 0;
    case Needs::kAvx512:
      return __builtin_cpu_supports("avx512vl") != 0;
  }
  return false;
}

// The first operand lies at the start of the memory, in the middle of a word, and across the end of a page; but an atomic one lies in
// a word, since others are refused.
TEST(PlacementInstructions, DoWhatTheyDoOnMemoryThatIsThere) {
  Elsewhere elsewhere;
  std::mt19937_64 random(7);
  alignas(64) static std::array<std::byte, kBytes> memory;
  for (const Case& one : cases()) {
    if (!has(one.needs)) continue;
    SCOPED_TRACE(one.text);
    const std::string text = one.text;
    const bool is_atomic = text.find("lock") != std::string::npos || text.find("xchg") != std::string::npos;
    const bool is_aligned = text.find("(%%rdi), %%xmm") != std::string::npos || text.find("movnt") != std::string::npos;
    for (const uint64_t offset : {1024, 1029, 4093})
      for (unsigned round = 0; round < 8; ++round) {
        const uint64_t at = is_atomic || is_aligned ? offset & ~uint64_t{15} : offset;
        for (size_t i = 0; i < kBytes; i += sizeof(uint64_t)) {
          const uint64_t value = random();
          std::memcpy(memory.data() + i, &value, sizeof value);
        }
        State before;
        for (uint64_t* const value : {&before.rax, &before.rcx, &before.rdx, &before.r9}) *value = random();
        for (auto& vector : before.ymm)
          for (uint64_t& value : vector) value = random();
        before.flags = (random() & 0x8d5) | 0x202;
        before.rdi = at;
        before.rsi = at + 2048;
        elsewhere.bytes() = memory;
        State here = before;
        State there = before;
        one.execute(memory.data(), here);
        const unsigned executed = elsewhere.executed();
        ASSERT_EQ(elsewhere.run([&] { one.execute(elsewhere.at(), there); }), Executed::kDone);
        ASSERT_GT(elsewhere.executed(), executed);
        ASSERT_TRUE(here == there) << "at " << at << ": " << std::hex << here.rax << " " << there.rax << ", flags "
                                   << here.flags << " " << there.flags;
        ASSERT_TRUE(elsewhere.bytes() == memory) << "at " << at;
      }
  }
}

TEST(PlacementInstructions, ThatAccessPartsOfAnOperandAreRefused) {
  Elsewhere elsewhere;
  std::byte* const at = elsewhere.at();
  const auto refuses = [&](auto&& function) { return elsewhere.run(function) == Executed::kNotUnderstood; };
  EXPECT_TRUE(refuses([at] { asm volatile("lock cmpxchg16b (%0)" ::"r"(at) : "rax", "rdx", "memory", "cc"); }));
  EXPECT_TRUE(refuses([at] { asm volatile("lock addl $1, 6(%0)" ::"r"(at) : "memory", "cc"); }));
  EXPECT_TRUE(refuses([at] { asm volatile("mov $70, %%eax\nbts %%rax, (%0)" ::"r"(at) : "rax", "memory", "cc"); }));
  if (has(Needs::kAvx512)) {
    EXPECT_TRUE(refuses([at] {
      asm volatile("mov $5, %%eax\nkmovw %%eax, %%k1\nvmovdqu32 %%zmm1, (%0)%{%%k1%}\nvzeroupper" ::"r"(at)
                   : "rax", "memory", "xmm1");
    }));
  }
  EXPECT_TRUE(std::ranges::all_of(elsewhere.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
}

// An element that the mask does not have may lie where nothing is.
TEST(PlacementInstructions, WithMasksAccessNothingElse) {
  if (!has(Needs::kAvx2)) GTEST_SKIP() << "this processor has no AVX2";
  Elsewhere elsewhere;
  elsewhere.end_at(8);
  std::byte* const at = elsewhere.at();
  const std::array<uint32_t, 8> mask = {~0u, ~0u};
  std::array<uint32_t, 8> loaded{};
  std::array<uint32_t, 8> gathered{};
  std::memset(elsewhere.bytes().data(), 7, 16);
  const auto run = [&] {
    asm volatile(
        "vmovdqu (%1), %%ymm0\nvpmaskmovd (%0), %%ymm0, %%ymm1\nvmovdqu %%ymm1, (%2)\n"
        "vpmaskmovd %%ymm0, %%ymm0, (%0)\nvpcmpeqd %%ymm2, %%ymm2, %%ymm2\nvpslld $3, %%ymm2, %%ymm2\n"
        "vpgatherdd %%ymm0, 8(%0,%%ymm2,1), %%ymm3\nvmovdqu %%ymm3, (%3)\nvzeroupper" ::"r"(at),
        "r"(mask.data()), "r"(loaded.data()), "r"(gathered.data())
        : "memory", "xmm0", "xmm1", "xmm2", "xmm3");
  };
  ASSERT_EQ(elsewhere.run(run), Executed::kDone);
  EXPECT_EQ(loaded, (std::array<uint32_t, 8>{0x07070707, 0x07070707}));
  EXPECT_EQ(elsewhere.bytes()[7], std::byte{0xff});
  EXPECT_EQ(elsewhere.bytes()[8], std::byte{7});
  EXPECT_EQ(gathered[0], ~0u);
  EXPECT_EQ(gathered[1], ~0u);
  elsewhere.end_at(4);
  EXPECT_EQ(elsewhere.run(run), Executed::kNothingThere);
}

TEST(PlacementInstructions, ChangeNothingWhereNothingIs) {
  Elsewhere elsewhere;
  elsewhere.take_away();
  auto* const word = reinterpret_cast<volatile uint64_t*>(elsewhere.at());
  EXPECT_EQ(elsewhere.run([&] { static_cast<void>(*word); }), Executed::kNothingThere);
  EXPECT_EQ(elsewhere.run([&] { *word = 1; }), Executed::kNothingThere);
  EXPECT_EQ(elsewhere.run([&] { std::atomic_ref(*const_cast<uint64_t*>(word)).fetch_add(1); }),
            Executed::kNothingThere);
}

// What compilers and the C library make of ordinary programs.
TEST(PlacementInstructions, OfOrdinaryCodeAreUnderstood) {
  Elsewhere elsewhere;
  char* const text = reinterpret_cast<char*>(elsewhere.at());
  std::string expected(3000, 'x');
  std::iota(expected.begin(), expected.end(), 1);
  std::ranges::replace(expected, '\0', '_');
  std::string copied(expected.size(), ' ');
  std::array<char, 100> printed{};
  std::vector<double> numbers(200);
  double sum = 0;
  bool is_found = false;
  const Executed done = elsewhere.run([&] {
    std::memcpy(text, expected.c_str(), expected.size() + 1);
    std::memmove(text + 100, text, 1000);
    std::memmove(text, text + 100, 1000);
    std::memset(text + 5000, 'y', 700);
    std::memcpy(copied.data(), text, copied.size());
    is_found = std::strlen(text) == expected.size() && std::strchr(text, 'w') != nullptr &&
               std::memcmp(text, expected.data(), 500) == 0 && std::memchr(text + 5000, 'z', 700) == nullptr;
    std::snprintf(text + 6000, 100, "%d and %.3f and %s", 17, 2.5, "words");
    std::memcpy(printed.data(), text + 6000, printed.size());
    auto* const of = reinterpret_cast<double*>(text + 8192);
    for (int i = 0; i < 200; ++i) of[i] = (i * 37) % 200 * 0.5;
    std::sort(of, of + 200);
    for (int i = 0; i < 200; ++i) sum += of[i] * of[i];
    std::copy(of, of + 200, numbers.begin());
  });
  ASSERT_EQ(done, Executed::kDone);
  EXPECT_TRUE(is_found);
  EXPECT_TRUE(copied == expected.substr(0, 1000) + expected.substr(900, 100) + expected.substr(1100));
  EXPECT_STREQ(printed.data(), "17 and 2.500 and words");
  for (int i = 0; i < 200; ++i) EXPECT_EQ(numbers[static_cast<size_t>(i)], i * 0.5);
  double by_hand = 0;
  for (int i = 0; i < 200; ++i) by_hand += i * 0.5 * i * 0.5;
  EXPECT_EQ(sum, by_hand);
}

TEST(PlacementInstructions, OfSeveralThreadsLoseNoAddition) {
  Elsewhere elsewhere;
  auto* const words = reinterpret_cast<std::atomic<uint32_t>*>(elsewhere.at());
  constexpr unsigned kThreads = 4, kAdditions = 500;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kAdditions; ++i) words[i % 2].fetch_add(t + 1);
    });
  for (std::thread& thread : threads) thread.join();
  std::array<uint32_t, 2> sums{};
  std::memcpy(sums.data(), elsewhere.bytes().data(), sizeof sums);
  EXPECT_EQ(sums[0] + sums[1], kAdditions * (1 + 2 + 3 + 4));
}

}  // namespace
}  // namespace multigrain::placement
