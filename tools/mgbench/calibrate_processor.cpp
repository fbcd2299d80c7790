// What this machine's processor takes for instructions of each class and for calls of library functions.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "calibrate.h"

namespace multigrain::bench {
namespace {

constexpr unsigned kBatches = 61;
constexpr unsigned kTurns = 4000;  // of a loop in a batch
constexpr unsigned kOps = 16;      // in a turn

// Times `batch`, which does `times` of something, and returns what one takes.
template <typename Batch>
Summary time_of(double times, Batch&& batch) {
  std::vector<double> samples;
  batch();
  for (unsigned i = 0; i < kBatches; ++i) {
    const uint64_t start = ticks();
    batch();
    samples.push_back(static_cast<double>(ticks() - start) * 1000 / ticks_per_us() / times);
  }
  return summarise(std::move(samples));
}

// Each of these executes `setup`, and then kTurns times `body` and a loop's end.
#define MG_LOOP(setup, body, ...)                                                   \
  [&] {                                                                             \
    uint64_t turns = kTurns;                                                        \
    asm volatile(setup "1:\n" body "dec %0\njnz 1b\n" : "+r"(turns) : __VA_ARGS__); \
  }
#define MG_CLOBBERS                                                                                                    \
  "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
      "xmm7", "memory", "cc"
// Sixteen of the same, of which each needs the one before; and sixteen in eight registers.
#define MG_CHAIN(op) ".rept 16\n" op "\n.endr\n"
#define MG_EIGHT(a, b, c, d, e, f, g, h) ".rept 2\n" a "\n" b "\n" c "\n" d "\n" e "\n" f "\n" g "\n" h "\n.endr\n"
#define MG_INTEGERS(op)                                                                                        \
  MG_EIGHT(op " %%rax, %%rax", op " %%rcx, %%rcx", op " %%rdx, %%rdx", op " %%rsi, %%rsi", op " %%rdi, %%rdi", \
           op " %%r8, %%r8", op " %%r9, %%r9", op " %%r10, %%r10")
#define MG_FLOATS(op)                                                                              \
  MG_EIGHT(op " %%xmm0, %%xmm0", op " %%xmm1, %%xmm1", op " %%xmm2, %%xmm2", op " %%xmm3, %%xmm3", \
           op " %%xmm4, %%xmm4", op " %%xmm5, %%xmm5", op " %%xmm6, %%xmm6", op " %%xmm7, %%xmm7")

}  // namespace

ProcessorTimes measure_processor() {
  ProcessorTimes out;
  constexpr double kEach = double{kTurns} * kOps;
  // A circle of words, each with the address of another one, for loads that need the one before.
  alignas(64) static std::array<uint64_t, 8> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = reinterpret_cast<uint64_t>(&words[(i + 3) % words.size()]);
  const uint64_t at = reinterpret_cast<uint64_t>(words.data());
  const auto both = [&](mg_count_class of, auto&& chain, auto&& independent) {
    out.chain[of] = time_of(kEach, chain);
    out.independent[of] = time_of(kEach, independent);
  };
  // The loop's own end, a subtraction and a branch, is in all of them: an eighth of an instruction each.
  const auto add_chain = MG_LOOP("", MG_CHAIN("add %%rax, %%rax"), "r"(at) : MG_CLOBBERS);
  both(MG_COUNT_INTEGER, add_chain, MG_LOOP("", MG_INTEGERS("add"), "r"(at) : MG_CLOBBERS));
  out.cycle = out.chain[MG_COUNT_INTEGER];
  both(MG_COUNT_MULTIPLY, MG_LOOP("", MG_CHAIN("imul %%rax, %%rax"), "r"(at) : MG_CLOBBERS),
       MG_LOOP("", MG_INTEGERS("imul"), "r"(at) : MG_CLOBBERS));
  const auto divide =
      MG_LOOP("mov $7, %%rcx\n", MG_CHAIN("mov $1000003, %%rax\nxor %%edx, %%edx\ndiv %%rcx"), "r"(at) : MG_CLOBBERS);
  const auto divide_chain = MG_LOOP("mov $7, %%rcx\nmov $1000003, %%rax\n",
                                    MG_CHAIN("xor %%edx, %%edx\nor $4096, %%rax\ndiv %%rcx"), "r"(at) : MG_CLOBBERS);
  both(MG_COUNT_DIVIDE, divide_chain, divide);
  both(MG_COUNT_LOAD, MG_LOOP("mov %1, %%rax\n", MG_CHAIN("mov (%%rax), %%rax"), "r"(at) : MG_CLOBBERS),
       MG_LOOP("",
               MG_EIGHT("mov (%1), %%rax", "mov 8(%1), %%rcx", "mov 16(%1), %%rdx", "mov 24(%1), %%rsi",
                        "mov 32(%1), %%rdi", "mov 40(%1), %%r8", "mov 48(%1), %%r9", "mov 56(%1), %%r10"),
               "r"(at) : MG_CLOBBERS));
  alignas(64) static std::array<uint64_t, 8> written{};
  const uint64_t to = reinterpret_cast<uint64_t>(written.data());
  const auto store =
      MG_LOOP("",
              MG_EIGHT("mov %%rax, (%1)", "mov %%rax, 8(%1)", "mov %%rax, 16(%1)", "mov %%rax, 24(%1)",
                       "mov %%rax, 32(%1)", "mov %%rax, 40(%1)", "mov %%rax, 48(%1)", "mov %%rax, 56(%1)"),
              "r"(to) : MG_CLOBBERS);
  both(MG_COUNT_STORE, store, store);
  const auto branch =
      MG_LOOP("xor %%eax, %%eax\n", MG_CHAIN("test %%rax, %%rax\njnz 2f") "2:\n", "r"(at) : MG_CLOBBERS);
  both(MG_COUNT_BRANCH, branch, branch);
  const auto call = MG_LOOP("jmp 4f\n3: ret\n4:\n", MG_CHAIN("call 3b"), "r"(at) : MG_CLOBBERS);
  both(MG_COUNT_CALL, call, call);
  const auto atomic = MG_LOOP("mov $1, %%eax\n", MG_CHAIN("lock addq %%rax, (%1)"), "r"(to) : MG_CLOBBERS);
  both(MG_COUNT_ATOMIC, atomic, atomic);
  // Of ones, whose products, quotients and roots are ones.
#define MG_ONES                                                                                                      \
  "mov $0x3ff0000000000000, %%rax\nmovq %%rax, %%xmm0\nmovq %%rax, %%xmm1\nmovq %%rax, %%xmm2\nmovq %%rax, %%xmm3\n" \
  "movq %%rax, %%xmm4\nmovq %%rax, %%xmm5\nmovq %%rax, %%xmm6\nmovq %%rax, %%xmm7\n"
#define MG_FLOAT_PAIR(of, op)                                                       \
  both(of, MG_LOOP(MG_ONES, MG_CHAIN(op " %%xmm0, %%xmm0"), "r"(at) : MG_CLOBBERS), \
       MG_LOOP(MG_ONES, MG_FLOATS(op), "r"(at) : MG_CLOBBERS))
  MG_FLOAT_PAIR(MG_COUNT_FLOAT_ADD, "addsd");
  MG_FLOAT_PAIR(MG_COUNT_FLOAT_MULTIPLY, "mulsd");
  MG_FLOAT_PAIR(MG_COUNT_FLOAT_DIVIDE, "divsd");
  MG_FLOAT_PAIR(MG_COUNT_FLOAT_SQRT, "sqrtsd");
  // There and back, so half of it is one.
  both(MG_COUNT_CONVERT,
       MG_LOOP("mov $5, %%eax\n", ".rept 8\ncvtsi2sd %%rax, %%xmm0\ncvttsd2si %%xmm0, %%rax\n.endr\n",
               "r"(at) : MG_CLOBBERS),
       MG_LOOP("",
               ".rept 4\ncvttsd2si %%xmm0, %%rax\ncvttsd2si %%xmm1, %%rcx\ncvttsd2si %%xmm2, %%rdx\n"
               "cvttsd2si %%xmm3, %%rsi\n.endr\n",
               "r"(at) : MG_CLOBBERS));
  return out;
}

namespace {

// So that the compiler neither leaves a call out nor moves it.
template <typename T>
void use(T value) {
  asm volatile("" : : "g"(value) : "memory");
}

template <typename Call>
Summary of_call(Call&& call) {
  constexpr unsigned kCalls = 512;
  return time_of(kCalls, [&] {
    for (unsigned i = 0; i < kCalls; ++i) call(i);
  });
}

template <typename Function>
Summary of_mathematics(Function* function) {
  // Each argument is another one, and hangs on no result.
  return of_call([=](unsigned i) {
    volatile double argument = 0.1 + 0.0015 * i;
    use(function(argument));
  });
}

}  // namespace

std::vector<CallTime> measure_calls() {
  using Unary = double(double);
  const auto unary = [](const char* name, Unary* function) {
    return CallTime{.name = name, .fixed = of_mathematics(function), .per_byte = {}, .has_bytes = false};
  };
  std::vector<CallTime> all = {
      unary("sqrt", std::sqrt), unary("exp", std::exp),   unary("log", std::log),     unary("sin", std::sin),
      unary("cos", std::cos),   unary("tan", std::tan),   unary("atan", std::atan),   unary("acos", std::acos),
      unary("asin", std::asin), unary("fabs", std::fabs), unary("floor", std::floor), unary("ceil", std::ceil),
  };
  const auto fixed = [&](const char* name, Summary time) {
    all.push_back({.name = name, .fixed = time, .per_byte = {}, .has_bytes = false});
  };
  const auto binary = [](double (*function)(double, double)) {
    return of_call([=](unsigned i) {
      volatile double argument = 0.1 + 0.0015 * i;
      use(function(argument, 1.7));
    });
  };
  fixed("atan2", binary(std::atan2));
  fixed("pow", binary(std::pow));
  // What is taken is given back, so a half of it is one.
  const auto halved = [](Summary whole) { return Summary{whole.p50 / 2, whole.p99 / 2, whole.count}; };
  const Summary malloc_free = halved(of_call([](unsigned i) {
    void* const block = std::malloc(16 + i % 16 * 16);
    use(block);
    std::free(block);
  }));
  fixed("malloc", malloc_free);
  fixed("free", malloc_free);
  fixed("calloc", halved(of_call([](unsigned i) {
          void* const block = std::calloc(1, 16 + i % 16 * 16);
          use(block);
          std::free(block);
        })));
  const Summary new_delete = halved(of_call([](unsigned i) {
    void* const block = ::operator new(16 + i % 16 * 16);
    use(block);
    ::operator delete(block);
  }));
  fixed("_Znwm", new_delete);
  fixed("_ZdlPv", new_delete);

  static constexpr size_t kFew = 64, kMany = size_t{64} << 10;
  static std::array<std::byte, kMany> from{}, to{};
  const auto bytes = [&](const char* name, auto&& call) {
    volatile size_t length = kFew;
    const Summary few = of_call([&](unsigned) { call(length); });
    length = kMany;
    const Summary many = of_call([&](unsigned) { call(length); });
    const auto per = [](double less, double more) { return std::max(0.0, (more - less) / double{kMany - kFew}); };
    const Summary per_byte{per(few.p50, many.p50), per(few.p99, many.p99), many.count};
    const auto rest = [&](double time, double each) { return std::max(0.0, time - double{kFew} * each); };
    all.push_back({.name = name,
                   .fixed = {rest(few.p50, per_byte.p50), rest(few.p99, per_byte.p99), few.count},
                   .per_byte = per_byte,
                   .has_bytes = true});
  };
  bytes("memcpy", [](size_t length) { use(std::memcpy(to.data(), from.data(), length)); });
  bytes("memmove", [](size_t length) { use(std::memmove(to.data(), from.data(), length)); });
  bytes("memset", [](size_t length) { use(std::memset(to.data(), 0, length)); });
  bytes("memcmp", [](size_t length) { use(std::memcmp(to.data(), from.data(), length)); });
  return all;
}

}  // namespace multigrain::bench
