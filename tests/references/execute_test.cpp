// Each instruction is executed twice: by the processor, on memory, and by the handler of the fault that it raises on memory without
// rights. Afterwards registers, flags and memory must be the same.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "references/module/instructions.h"

namespace multigrain::references {
namespace {

constexpr size_t kPage = 4096;

// Two pages without rights, and the same memory with all rights elsewhere.
struct Places {
  std::byte* closed = nullptr;
  std::byte* open = nullptr;

  Places() {
    const int file = memfd_create("pages", 0);
    EXPECT_EQ(ftruncate(file, 2 * kPage), 0);
    const auto map = [file](int rights) {
      return static_cast<std::byte*>(mmap(nullptr, 2 * kPage, rights, MAP_SHARED, file, 0));
    };
    closed = map(PROT_NONE);
    open = map(PROT_READ | PROT_WRITE);
    close(file);
  }
  ~Places() {
    munmap(closed, 2 * kPage);
    munmap(open, 2 * kPage);
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
};

// The memory as instructions refer to it, by the open mapping.
class OpenMemory final : public Memory {
 public:
  explicit OpenMemory(const Places& places) : places_(places) {}
  void load(uint64_t address, std::span<std::byte> out) override { std::memcpy(out.data(), at(address), out.size()); }
  void store(uint64_t address, std::span<const std::byte> bytes) override {
    std::memcpy(at(address), bytes.data(), bytes.size());
  }
  bool compare_and_swap(uint64_t address, std::span<std::byte> expected, std::span<const std::byte> desired) override {
    const std::atomic_ref word(*reinterpret_cast<uint64_t*>(at(address & ~uint64_t{7})));
    const size_t shift = address & 7;
    for (uint64_t old = word.load();;) {
      std::byte* const part = reinterpret_cast<std::byte*>(&old) + shift;
      if (std::memcmp(part, expected.data(), expected.size()) != 0) {
        std::memcpy(expected.data(), part, expected.size());
        return false;
      }
      uint64_t fresh = old;
      std::memcpy(reinterpret_cast<std::byte*>(&fresh) + shift, desired.data(), desired.size());
      if (word.compare_exchange_strong(old, fresh)) return true;
    }
  }

 private:
  [[nodiscard]] std::byte* at(uint64_t address) const {
    return places_.open + (address - reinterpret_cast<uint64_t>(places_.closed));
  }
  const Places& places_;
};

Places* g_places = nullptr;
std::atomic<uint64_t> g_executed{0};
std::atomic<uint64_t> g_refused{0};

// What is refused the processor executes, on a page that is open from then on.
void on_fault(int, siginfo_t* info, void* context) {
  auto* const address = static_cast<std::byte*>(info->si_addr);
  if (address < g_places->closed || address >= g_places->closed + 2 * kPage) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  std::byte* const page = g_places->closed + static_cast<size_t>(address - g_places->closed) / kPage * kPage;
  OpenMemory memory(*g_places);
  const auto begin = reinterpret_cast<uint64_t>(page);
  if (execute(*static_cast<ucontext_t*>(context), {begin, begin + kPage}, memory)) {
    ++g_executed;
    return;
  }
  ++g_refused;
  mprotect(page, kPage, PROT_READ | PROT_WRITE);
}

struct alignas(32) Registers {
  std::array<uint64_t, 4> general;  // rax, rcx, rdx, flags
  uint64_t index = 0;
  std::array<uint64_t, 3> unused{};
  std::array<uint64_t, 4> ymm0;
  std::array<uint64_t, 4> ymm1;
  bool operator==(const Registers&) const = default;
};

struct Case {
  const char* text;
  void (*run)(void* at, Registers& registers);
};

// The memory operand's address is in rdi; rbx is an index.
#define INSTRUCTION(text)                                                                                \
  Case {                                                                                                 \
    text, [](void* at, Registers& registers) {                                                           \
      asm volatile(                                                                                      \
          "lea -256(%%rsp), %%rsp\n\t"                                                                   \
          "vmovdqa 64(%%rsi), %%ymm0\n\tvmovdqa 96(%%rsi), %%ymm1\n\t"                                   \
          "mov (%%rsi), %%rax\n\tmov 8(%%rsi), %%rcx\n\tmov 16(%%rsi), %%rdx\n\tmov 32(%%rsi), %%r8\n\t" \
          "push 24(%%rsi)\n\tpopfq\n\t" text                                                             \
          "\n\tpushfq\n\tpop 24(%%rsi)\n\t"                                                              \
          "mov %%rax, (%%rsi)\n\tmov %%rcx, 8(%%rsi)\n\tmov %%rdx, 16(%%rsi)\n\t"                        \
          "vmovdqa %%ymm0, 64(%%rsi)\n\tvmovdqa %%ymm1, 96(%%rsi)\n\tvzeroupper\n\t"                     \
          "lea 256(%%rsp), %%rsp"                                                                        \
          : "+D"(at)                                                                                     \
          : "S"(&registers)                                                                              \
          : "rax", "rcx", "rdx", "r8", "xmm0", "xmm1", "memory", "cc");                                  \
    }                                                                                                    \
  }

#define IN_ALL_WIDTHS(name)                                                                                            \
  INSTRUCTION(name "b %%cl, (%%rdi)"), INSTRUCTION(name "b %%ch, (%%rdi)"), INSTRUCTION(name "w %%cx, (%%rdi)"),       \
      INSTRUCTION(name "l %%ecx, (%%rdi)"), INSTRUCTION(name "q %%rcx, (%%rdi)"), INSTRUCTION(name "b (%%rdi), %%dl"), \
      INSTRUCTION(name "b (%%rdi), %%dh"), INSTRUCTION(name "w (%%rdi), %%dx"), INSTRUCTION(name "l (%%rdi), %%edx"),  \
      INSTRUCTION(name "q (%%rdi), %%rdx"), INSTRUCTION(name "b $-3, (%%rdi)"), INSTRUCTION(name "w $-300, (%%rdi)"),  \
      INSTRUCTION(name "l $-300000, (%%rdi)"), INSTRUCTION(name "q $-300000, (%%rdi)")
#define OF_ONE_OPERAND(name)                                                                   \
  INSTRUCTION(name "b (%%rdi)"), INSTRUCTION(name "w (%%rdi)"), INSTRUCTION(name "l (%%rdi)"), \
      INSTRUCTION(name "q (%%rdi)")
#define TO_MEMORY(name)                                                                                           \
  INSTRUCTION(name "b %%cl, (%%rdi)"), INSTRUCTION(name "w %%cx, (%%rdi)"), INSTRUCTION(name "l %%ecx, (%%rdi)"), \
      INSTRUCTION(name "q %%rcx, (%%rdi)")
#define BOTH_WAYS(name, xmm) INSTRUCTION(name " (%%rdi), " xmm), INSTRUCTION(name " " xmm ", (%%rdi)")

// Instructions that any processor allows at any address.
std::vector<Case> anywhere() {
  return {
      IN_ALL_WIDTHS("mov"),
      IN_ALL_WIDTHS("add"),
      IN_ALL_WIDTHS("adc"),
      IN_ALL_WIDTHS("sub"),
      IN_ALL_WIDTHS("sbb"),
      IN_ALL_WIDTHS("and"),
      IN_ALL_WIDTHS("or"),
      IN_ALL_WIDTHS("xor"),
      IN_ALL_WIDTHS("cmp"),
      // The other order of its operands is the same instruction.
      TO_MEMORY("test"),
      INSTRUCTION("testb $5, (%%rdi)"),
      INSTRUCTION("testl $-70000, (%%rdi)"),
      OF_ONE_OPERAND("inc"),
      OF_ONE_OPERAND("dec"),
      OF_ONE_OPERAND("neg"),
      OF_ONE_OPERAND("not"),
      INSTRUCTION("movzbw (%%rdi), %%dx"),
      INSTRUCTION("movzbl (%%rdi), %%edx"),
      INSTRUCTION("movzbq (%%rdi), %%rdx"),
      INSTRUCTION("movzwl (%%rdi), %%edx"),
      INSTRUCTION("movzwq (%%rdi), %%rdx"),
      INSTRUCTION("movsbw (%%rdi), %%dx"),
      INSTRUCTION("movsbl (%%rdi), %%edx"),
      INSTRUCTION("movsbq (%%rdi), %%rdx"),
      INSTRUCTION("movswl (%%rdi), %%edx"),
      INSTRUCTION("movswq (%%rdi), %%rdx"),
      INSTRUCTION("movslq (%%rdi), %%rdx"),
      INSTRUCTION("movnti %%ecx, (%%rdi)"),
      INSTRUCTION("movnti %%rcx, (%%rdi)"),
      // Forms of addresses.
      INSTRUCTION("movl 16(%%rdi), %%edx"),
      INSTRUCTION("movl -16(%%rdi), %%edx"),
      INSTRUCTION("movl (%%rdi,%%r8), %%edx"),
      INSTRUCTION("movl 8(%%rdi,%%r8,4), %%edx"),
      INSTRUCTION("movq %%rcx, 8(%%rdi,%%r8,8)"),
      INSTRUCTION("movl (%%rdi), %%edi\n\tmovl %%edi, %%edx"),
      // Vectors.
      BOTH_WAYS("movups", "%%xmm0"),
      BOTH_WAYS("movupd", "%%xmm1"),
      BOTH_WAYS("movdqu", "%%xmm0"),
      INSTRUCTION("lddqu (%%rdi), %%xmm1"),
      BOTH_WAYS("movss", "%%xmm0"),
      BOTH_WAYS("movsd", "%%xmm1"),
      BOTH_WAYS("movd", "%%xmm0"),
      BOTH_WAYS("movq", "%%xmm1"),
      BOTH_WAYS("movlps", "%%xmm0"),
      BOTH_WAYS("movhps", "%%xmm0"),
      BOTH_WAYS("movlpd", "%%xmm1"),
      BOTH_WAYS("movhpd", "%%xmm1"),
      BOTH_WAYS("vmovups", "%%xmm0"),
      BOTH_WAYS("vmovups", "%%ymm0"),
      BOTH_WAYS("vmovupd", "%%ymm1"),
      BOTH_WAYS("vmovdqu", "%%xmm1"),
      BOTH_WAYS("vmovdqu", "%%ymm0"),
      BOTH_WAYS("vmovss", "%%xmm0"),
      BOTH_WAYS("vmovsd", "%%xmm1"),
      BOTH_WAYS("vmovd", "%%xmm0"),
      BOTH_WAYS("vmovq", "%%xmm1"),
      INSTRUCTION("addsd (%%rdi), %%xmm0"),
      INSTRUCTION("addss (%%rdi), %%xmm0"),
      INSTRUCTION("subsd (%%rdi), %%xmm1"),
      INSTRUCTION("subss (%%rdi), %%xmm1"),
      INSTRUCTION("mulsd (%%rdi), %%xmm0"),
      INSTRUCTION("mulss (%%rdi), %%xmm0"),
      INSTRUCTION("divsd (%%rdi), %%xmm1"),
      INSTRUCTION("divss (%%rdi), %%xmm1"),
      INSTRUCTION("vaddsd (%%rdi), %%xmm1, %%xmm0"),
      INSTRUCTION("vsubss (%%rdi), %%xmm1, %%xmm0"),
      INSTRUCTION("vmulsd (%%rdi), %%xmm0, %%xmm1"),
      INSTRUCTION("vdivsd (%%rdi), %%xmm0, %%xmm0"),
  };
}

// Atomic instructions; over two words they are refused.
std::vector<Case> atomic() {
  return {
      TO_MEMORY("lock add"),
      TO_MEMORY("lock sub"),
      TO_MEMORY("lock and"),
      TO_MEMORY("lock or"),
      TO_MEMORY("lock xor"),
      TO_MEMORY("lock adc"),
      TO_MEMORY("lock sbb"),
      OF_ONE_OPERAND("lock inc"),
      OF_ONE_OPERAND("lock dec"),
      OF_ONE_OPERAND("lock neg"),
      OF_ONE_OPERAND("lock not"),
      TO_MEMORY("xchg"),
      TO_MEMORY("lock xadd"),
      TO_MEMORY("lock cmpxchg"),
      // The accumulator is what is in memory.
      INSTRUCTION("movb (%%rdi), %%al\n\tlock cmpxchgb %%cl, (%%rdi)"),
      INSTRUCTION("movw (%%rdi), %%ax\n\tlock cmpxchgw %%cx, (%%rdi)"),
      INSTRUCTION("movl (%%rdi), %%eax\n\tlock cmpxchgl %%ecx, (%%rdi)"),
      INSTRUCTION("movq (%%rdi), %%rax\n\tlock cmpxchgq %%rcx, (%%rdi)"),
  };
}

// Instructions that raise other faults at addresses that are not aligned.
std::vector<Case> aligned() {
  return {
      BOTH_WAYS("movaps", "%%xmm0"),           BOTH_WAYS("movapd", "%%xmm1"),
      BOTH_WAYS("movdqa", "%%xmm0"),           INSTRUCTION("movntps %%xmm0, (%%rdi)"),
      INSTRUCTION("movntdq %%xmm1, (%%rdi)"),  BOTH_WAYS("vmovaps", "%%xmm0"),
      BOTH_WAYS("vmovaps", "%%ymm0"),          BOTH_WAYS("vmovdqa", "%%ymm1"),
      INSTRUCTION("vmovntdq %%ymm0, (%%rdi)"), INSTRUCTION("vmovntpd %%ymm1, (%%rdi)"),
  };
}

// Instructions that are left to the processor.
std::vector<Case> refused() {
  return {
      INSTRUCTION("mov %%rdi, %%rdx\n\tmov $4, %%ecx\n\tpush %%rdi\n\tpush %%rsi\n\tmov %%rdx, %%rsi\n\t"
                  "add $64, %%rdi\n\trep movsb\n\tpop %%rsi\n\tpop %%rdi\n\tmov $0, %%edx"),
      INSTRUCTION("push %%rdi\n\tmov $3, %%ecx\n\trep stosq\n\tpop %%rdi"),
      INSTRUCTION("push %%rdi\n\tstosb\n\tpop %%rdi"),
      INSTRUCTION("pushq (%%rdi)\n\tpopq %%rdx"),
      INSTRUCTION("pushq %%rcx\n\tpopq (%%rdi)"),
      INSTRUCTION("imulq (%%rdi), %%rdx"),
      INSTRUCTION("btsl $3, (%%rdi)"),
      INSTRUCTION("sete (%%rdi)"),
      INSTRUCTION("shll $3, (%%rdi)"),
      INSTRUCTION("fldl (%%rdi)\n\tfstpl 8(%%rdi)"),
      INSTRUCTION("vpbroadcastq (%%rdi), %%xmm0"),
      INSTRUCTION("mov (%%rdi), %%rdx"),  // whose access begins in the page before; see below
  };
}

class Execute : public testing::Test {
 protected:
  Execute() {
    g_places = &places_;
    struct sigaction action = {};
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before_);
  }
  ~Execute() override {
    sigaction(SIGSEGV, &before_, nullptr);
    g_places = nullptr;
  }

  static bool has_avx2() { return __builtin_cpu_supports("avx2"); }

  // Executes the instruction both ways `offset` bytes behind the first page's middle. Returns whether the handler has refused it.
  bool compare(const Case& one, size_t offset) {
    Registers registers;
    std::array<uint64_t, 2 * kPage / sizeof(uint64_t)> memory;
    for (uint64_t& word : memory) word = random_();
    for (uint64_t& value : registers.general) value = random_();
    constexpr uint64_t kArithmetic = 0x8d5, kFixed = 0x202;
    registers.general[3] = (registers.general[3] & kArithmetic) | kFixed;
    registers.index = random_() % 5;
    // Numbers, and nothing that traps or that has many forms.
    std::uniform_real_distribution<double> number(-1000, 1000);
    for (auto* vector : {&registers.ymm0, &registers.ymm1})
      for (uint64_t& value : *vector) value = std::bit_cast<uint64_t>(number(random_));
    if (random_() % 2 == 0) {
      const double value = number(random_);
      std::memcpy(reinterpret_cast<std::byte*>(memory.data()) + offset, &value, sizeof value);
    }
    std::memcpy(places_.open, memory.data(), sizeof memory);
    EXPECT_EQ(mprotect(places_.closed, 2 * kPage, PROT_NONE), 0);
    Registers by_handler = registers;
    const uint64_t executed = g_executed, refused = g_refused;
    one.run(places_.closed + offset, by_handler);
    EXPECT_NE(g_executed + g_refused, executed + refused) << one.text << " raised no fault";
    std::array<uint64_t, 2 * kPage / sizeof(uint64_t)> changed;
    std::memcpy(changed.data(), places_.open, sizeof changed);

    std::memcpy(places_.open, memory.data(), sizeof memory);
    one.run(places_.open + offset, registers);
    EXPECT_EQ(std::memcmp(changed.data(), places_.open, sizeof changed), 0) << one.text << " at " << offset;
    for (size_t i = 0; i < registers.general.size(); ++i)
      EXPECT_EQ(by_handler.general[i], registers.general[i]) << one.text << " at " << offset << ", register " << i;
    EXPECT_EQ(by_handler.ymm0, registers.ymm0) << one.text << " at " << offset;
    EXPECT_EQ(by_handler.ymm1, registers.ymm1) << one.text << " at " << offset;
    return g_refused != refused;
  }

  Places places_;
  std::mt19937_64 random_{4711};
  struct sigaction before_ = {};
};

constexpr size_t kMiddle = kPage / 2;
constexpr int kRounds = 8;

TEST_F(Execute, DoesWhatTheProcessorDoes) {
  if (!has_avx2()) GTEST_SKIP() << "the processor has no AVX2";
  for (const Case& one : anywhere())
    for (int round = 0; round < kRounds; ++round)
      for (const size_t offset : {0, 8, 1, 3, 5, 7})
        EXPECT_FALSE(compare(one, kMiddle + offset)) << one.text << " at " << offset << " is refused";
}

TEST_F(Execute, DoesAtomicInstructionsInOneWord) {
  if (!has_avx2()) GTEST_SKIP() << "the processor has no AVX2";
  for (const Case& one : atomic()) {
    for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(compare(one, kMiddle)) << one.text << " is refused";
    const bool is_of_bytes = std::strstr(one.text, "b %%") != nullptr || std::strstr(one.text, "b (") != nullptr;
    EXPECT_EQ(compare(one, kMiddle + 7), !is_of_bytes) << one.text << " at the end of a word";
  }
}

TEST_F(Execute, DoesAlignedMoves) {
  if (!has_avx2()) GTEST_SKIP() << "the processor has no AVX2";
  for (const Case& one : aligned())
    for (int round = 0; round < kRounds; ++round) EXPECT_FALSE(compare(one, kMiddle)) << one.text << " is refused";
}

TEST_F(Execute, LeavesTheRestToTheProcessor) {
  if (!has_avx2()) GTEST_SKIP() << "the processor has no AVX2";
  const std::vector<Case> all = refused();
  for (size_t i = 0; i + 1 < all.size(); ++i) EXPECT_TRUE(compare(all[i], kMiddle)) << all[i].text << " is not refused";
  EXPECT_TRUE(compare(all.back(), kPage - 4)) << "an access of two pages is not refused";
}

TEST_F(Execute, LosesNoAtomicAddition) {
  constexpr uint64_t kAdditions = 2000;
  constexpr unsigned kThreads = 4;
  std::memset(places_.open, 0, kPage);
  mprotect(places_.closed, 2 * kPage, PROT_NONE);
  std::vector<std::thread> threads;
  // Half of them are the home's, whose processor makes the accesses.
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto* const place = t % 2 == 0 ? places_.closed : places_.open;
      auto* const word = reinterpret_cast<std::atomic<uint64_t>*>(place);
      auto* const parts = reinterpret_cast<std::atomic<uint16_t>*>(place + 8);
      for (uint64_t i = 0; i < kAdditions; ++i) {
        word->fetch_add(1);
        parts[t] = static_cast<uint16_t>(i);  // beside the others' parts of the word
        uint16_t old = parts[t].load();
        EXPECT_EQ(old, i);
        parts[t].compare_exchange_strong(old, static_cast<uint16_t>(old + 1));
        EXPECT_EQ(parts[t].load(), i + 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(places_.open), kThreads * kAdditions);
}

}  // namespace
}  // namespace multigrain::references
