// mgcc -fmultigrain-count has compiled small functions, whose counts are known.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "count/counting.h"
#include "kernels.h"

extern "C" char* call_index(const char* text);

namespace multigrain::testing {
namespace {

using counting::InstructionCosts;

constexpr long kMany = 1000;

// Each class of instructions has a price that no sum of few others has. Checks are free.
InstructionCosts prices() {
  InstructionCosts costs;
  uint64_t price = 1;
  for (uint64_t& each : std::span(costs.of_class).first(MG_COUNT_INSTRUCTIONS)) each = price *= 3;
  costs.calls["memcpy"] = {.fixed = 10'000'000, .per_byte = 1000};
  costs.calls["sin"] = {.fixed = 20'000'000};
  costs.calls["malloc"] = {.fixed = 30'000'000};
  costs.calls["index"] = {.fixed = 40'000'000};
  costs.other_calls = {.fixed = 50'000'000};
  return costs;
}

uint64_t price(mg_count_class of) {
  return prices().of_class[of];
}

// The functions of a library that was compiled in one way.
class Kernels {
 public:
  explicit Kernels(const std::string& way) {
    const std::string path = std::string(MULTIGRAIN_COUNT_KERNELS) + "/count_" + way + ".so";
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
  }
  ~Kernels() { dlclose(library_); }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  template <typename Function>
  Function* get(const char* name) const {
    void* const found = dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* library_;
};
#define KERNEL(name) kernels.get<decltype(name)>(#name)

uint64_t counted(const std::function<void()>& what) {
  const uint64_t before = counting::now();
  what();
  return counting::now() - before;
}

std::vector<long> numbers_up_to(long n) {
  std::vector<long> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

class Count : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { counting::install(prices()); }
  void TearDown() override {
    counting::set_poll(nullptr);
    __multigrain_count.limit = UINT64_MAX;
  }
};

// What an iteration of add_up() executes when nothing is unrolled: a load, two additions, a branch.
uint64_t iteration() {
  return price(MG_COUNT_LOAD) + 2 * price(MG_COUNT_INTEGER) + price(MG_COUNT_BRANCH);
}

TEST_F(Count, ALoopCostsItsIterations) {
  const std::vector<long> numbers = numbers_up_to(2 * kMany);
  for (const char* const way : {"O1", "O1_no_hoist", "lto"}) {
    const Kernels kernels(way);
    const auto of = [&](long n) { return counted([&] { KERNEL(add_up)(numbers.data(), n); }); };
    EXPECT_EQ(of(2) - of(1), iteration()) << way;
    EXPECT_EQ(of(2 * kMany) - of(kMany), kMany * iteration()) << way;
    EXPECT_EQ(of(0), price(MG_COUNT_BRANCH)) << way;
    EXPECT_EQ(of(-5), price(MG_COUNT_BRANCH)) << way;
  }
}

TEST_F(Count, ANestCostsItsRows) {
  const Kernels kernels("O1");
  const std::vector<long> rows(30 * 30, 1);
  const auto of = [&](long n, long m) { return counted([&] { KERNEL(add_up_rows)(rows.data(), n, m); }); };
  EXPECT_EQ(of(10, 21) - of(10, 20), 10 * iteration());
  EXPECT_EQ(of(30, 29) - of(30, 28), 30 * iteration());
  EXPECT_EQ(of(21, 9) - of(20, 9), of(11, 9) - of(10, 9));
}

TEST_F(Count, AConditionCostsWhatIsExecuted) {
  for (const char* const way : {"O1", "O1_no_hoist"}) {
    const Kernels kernels(way);
    const std::vector<long> odd(kMany, 1);
    const std::vector<long> even(kMany, 2);
    const auto of = [&](const std::vector<long>& numbers) {
      return counted([&] { KERNEL(add_odd)(numbers.data(), kMany); });
    };
    EXPECT_EQ(of(odd) - of(even), kMany * price(MG_COUNT_INTEGER)) << way;
  }
}

TEST_F(Count, InstructionsHaveTheirClasses) {
  const Kernels kernels("O1");
  const uint64_t expected = 2 * price(MG_COUNT_FLOAT_MULTIPLY) / 2 + 4 * price(MG_COUNT_FLOAT_ADD) +
                            price(MG_COUNT_FLOAT_DIVIDE) + price(MG_COUNT_FLOAT_SQRT) + price(MG_COUNT_DIVIDE) +
                            price(MG_COUNT_MULTIPLY) + 2 * price(MG_COUNT_CONVERT);
  EXPECT_EQ(counted([&] { KERNEL(operations)(2.0, 3.0, 7, 2); }), expected);
}

TEST_F(Count, LibraryFunctionsCostByNameAndBytes) {
  const Kernels kernels("O1");
  std::vector<char> from(5000), to(5000);
  const auto of = [&](size_t size) { return counted([&] { KERNEL(copy)(to.data(), from.data(), size); }); };
  EXPECT_EQ(of(0), 10'000'000);
  EXPECT_EQ(of(5000), 10'000'000 + 5000 * 1000);
  EXPECT_EQ(counted([&] { KERNEL(copy_short)(to.data(), from.data()); }),
            2 * price(MG_COUNT_LOAD) + 2 * price(MG_COUNT_STORE));
  EXPECT_EQ(counted([&] { KERNEL(sine)(1.0); }), 20'000'000);
  // free() has no price of its own. The rest is a store and a load.
  EXPECT_EQ(counted([&] { KERNEL(allocate)(); }),
            30'000'000 + 50'000'000 + price(MG_COUNT_LOAD) + price(MG_COUNT_STORE));
}

// The program's own index() costs what it executes, and not what the C library's costs.
TEST_F(Count, AFunctionOfTheProgramsIsNoLibrarys) {
  EXPECT_LT(counted([] { call_index("x"); }), 40'000'000);
}

TEST_F(Count, RecursionCostsEachCall) {
  for (const char* const way : {"O0", "O1", "O2"}) {
    const Kernels kernels(way);
    const auto of = [&](long n) { return counted([&] { KERNEL(depth)(n); }); };
    const uint64_t one = of(2) - of(1);
    EXPECT_GE(one, price(MG_COUNT_CALL)) << way;
    EXPECT_EQ(of(100) - of(50), 50 * one) << way;
  }
}

TEST_F(Count, LeavingByAnExceptionOrAJumpLosesNothing) {
  for (const char* const way : {"O0", "O1", "O1_no_hoist", "O2", "O3", "lto"}) {
    const Kernels kernels(way);
    for (auto* const leave : {KERNEL(call_and_throw), KERNEL(call_and_jump)}) {
      const auto of = [&](long n) { return counted([&] { leave(n); }); };
      const uint64_t one = of(2) - of(1);
      EXPECT_GE(one, price(MG_COUNT_CALL)) << way;
      EXPECT_EQ(of(kMany) - of(1), (kMany - 1) * one) << way;
    }
  }
}

TEST_F(Count, CostsAreTheSameTwiceAndLowerWhenOptimised) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  const auto of = [&](const Kernels& kernels) {
    return counted([&] {
      KERNEL(add_up)(numbers.data(), kMany);
      KERNEL(find)(numbers.data(), kMany, kMany - 1);
      KERNEL(add_constant)(numbers.data());
      KERNEL(depth)(20);
      KERNEL(call_and_throw)(10);
    });
  };
  const uint64_t slow = of(Kernels("O0"));
  const uint64_t fast = of(Kernels("O2"));
  EXPECT_EQ(of(Kernels("O0")), slow);
  EXPECT_EQ(of(Kernels("O2")), fast);
  EXPECT_LT(fast, slow);
}

// Loops that are counted before they begin have the same counts as if each iteration counted itself.
TEST_F(Count, HoistingChangesNoCount) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  const std::vector<double> floats(kMany, 0.5);
  for (const std::string level : {"O1", "O2", "O3"}) {
    const Kernels hoisted(level);
    const Kernels each(level + "_no_hoist");
    const auto same = [&](const char* what, const std::function<void(const Kernels&)>& run) {
      EXPECT_EQ(counted([&] { run(hoisted); }), counted([&] { run(each); })) << what << " at " << level;
    };
    for (const long n : {0L, 1L, 2L, 3L, 7L, 64L, 999L}) {
      same("add_up", [&](const Kernels& kernels) { KERNEL(add_up)(numbers.data(), n); });
      same("add_up_rows", [&](const Kernels& kernels) { KERNEL(add_up_rows)(numbers.data(), n / 30, 30); });
      same("add_up_rows", [&](const Kernels& kernels) { KERNEL(add_up_rows)(numbers.data(), 30, n / 30); });
      same("add_odd", [&](const Kernels& kernels) { KERNEL(add_odd)(numbers.data(), n); });
      same("add_in_register", [&](const Kernels& kernels) { KERNEL(add_in_register)(n); });
      same("find", [&](const Kernels& kernels) { KERNEL(find)(numbers.data(), kMany, n); });
      same("products", [&](const Kernels& kernels) { KERNEL(products)(floats.data(), n, 5); });
    }
    same("add_constant", [&](const Kernels& kernels) { KERNEL(add_constant)(numbers.data()); });
  }
}

// With checks the program's instructions are counted, and not theirs. What they do to loops costs little: a loop is cut into
// pieces, whose begin is executed once a piece.
TEST_F(Count, ChecksAreNotCounted) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  const Kernels plain("O1");
  const Kernels checked("O1_checks");
  const auto of = [&](const Kernels& kernels, long n) {
    return counted([&] {
      KERNEL(find)(numbers.data(), kMany, n);
      KERNEL(add_up)(numbers.data(), n);
      KERNEL(add_odd)(numbers.data(), n);
    });
  };
  const auto each = static_cast<double>(of(plain, kMany / 2) - of(plain, 10));
  EXPECT_NEAR(static_cast<double>(of(checked, kMany / 2) - of(checked, 10)), each,
              static_cast<double>(kMany / 2 * price(MG_COUNT_INTEGER)) / 2);
}

uint64_t polls = 0;
uint64_t distance = 0;
double disturbance = 0;

void poll() {
  ++polls;
  // The registers that the loop uses are used here, too.
  for (int i = 1; i < 20; ++i) disturbance += std::sqrt(disturbance + i) / i;
  __multigrain_count.limit = counting::now() + distance;
}

uint64_t polls_of(uint64_t every, const std::function<void()>& what) {
  polls = 0;
  distance = every;
  counting::set_poll(poll);
  __multigrain_count.limit = counting::now() + every;
  what();
  counting::set_poll(nullptr);
  __multigrain_count.limit = UINT64_MAX;
  return polls;
}

TEST_F(Count, ALoopPollsWheneverItsLimitIsReached) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  for (const char* const way : {"O0", "O1", "O1_no_hoist", "O2", "O3", "lto"}) {
    const Kernels kernels(way);
    const auto run = [&] { KERNEL(find)(numbers.data(), kMany, kMany - 1); };
    const uint64_t all = counted(run);
    const uint64_t one = all / kMany;
    const uint64_t every = 10 * one;
    const uint64_t times = polls_of(every, run);
    EXPECT_GE(times, all / (every + 2 * one) - 1) << way;
    EXPECT_LE(times, all / every + 1) << way;
    EXPECT_EQ(polls_of(UINT64_MAX / 2, run), 0) << way;
  }
}

TEST_F(Count, AnyLongLoopPolls) {
  for (const char* const way : {"O0", "O1", "O2", "O3", "lto"}) {
    const Kernels kernels(way);
    EXPECT_GE(polls_of(100'000'000 * price(MG_COUNT_INTEGER), [&] { KERNEL(add_in_register)(1'000'000'000); }), 1)
        << way;
  }
}

TEST_F(Count, RecursionPolls) {
  for (const char* const way : {"O0", "O2"}) {
    const Kernels kernels(way);
    EXPECT_GE(polls_of(price(MG_COUNT_CALL), [&] { KERNEL(depth)(100); }), 50) << way;
  }
}

TEST_F(Count, ShortLoopsDoNotPoll) {
  const std::vector<long> numbers = numbers_up_to(16);
  for (const char* const way : {"O1", "O1_no_hoist", "O2"}) {
    const Kernels kernels(way);
    EXPECT_EQ(polls_of(0, [&] { KERNEL(add_constant)(numbers.data()); }), 0) << way;
  }
}

TEST_F(Count, APollKeepsRegisters) {
  std::vector<double> numbers(kMany);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.5 + 0.001 * static_cast<double>(i % 7);
  for (const char* const way : {"O0", "O1", "O2", "O3", "avx2"}) {
    const Kernels kernels(way);
    const auto run = [&] { return KERNEL(products)(numbers.data(), kMany, 77); };
    const double undisturbed = run();
    double disturbed = 0;
    EXPECT_GE(polls_of(1, [&] { disturbed = run(); }), kMany - 1) << way;
    EXPECT_EQ(disturbed, undisturbed) << way;
  }
}

TEST_F(Count, NobodyWhoWantsPollsGetsNoMore) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  const Kernels kernels("O1");
  __multigrain_count.limit = 0;
  KERNEL(find)(numbers.data(), kMany, kMany - 1);
  EXPECT_EQ(__multigrain_count.limit, UINT64_MAX);
}

// What may be of shared memory, as far as the compiler knows, has a check in a program with checks, and each iteration of a loop
// that is no piece under hazards a poll. In a program without them, neither has a price.
TEST_F(Count, ChecksHavePricesOfTheirOwn) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  const auto find_with = [&](const char* way, mg_count_class of) {
    InstructionCosts costs{};
    costs.of_class[of] = 1;
    counting::install(costs);
    const Kernels kernels(way);
    return counted([&] { KERNEL(find)(numbers.data(), kMany, kMany - 1); });
  };
  for (const mg_count_class of : {MG_COUNT_LOAD_CHECK, MG_COUNT_STORE_CHECK, MG_COUNT_POLL})
    EXPECT_EQ(find_with("O1", of), 0u) << of;
  EXPECT_GE(find_with("O1_checks", MG_COUNT_LOAD_CHECK) + find_with("O1_checks", MG_COUNT_STORE_CHECK), 1u);
  EXPECT_LE(find_with("O1_checks", MG_COUNT_LOAD_CHECK), static_cast<uint64_t>(kMany));
}

// A library that is loaded later has its costs, and one that has been unloaded is left alone.
TEST_F(Count, LibrariesComeAndGo) {
  const std::vector<long> numbers = numbers_up_to(kMany);
  for (int i = 0; i < 3; ++i) {
    const Kernels kernels("O2");
    EXPECT_GT(counted([&] { KERNEL(add_up)(numbers.data(), kMany); }), 0);
  }
  const InstructionCosts free{};
  counting::install(free);
  const Kernels kernels("O2");
  EXPECT_EQ(counted([&] { KERNEL(add_up)(numbers.data(), kMany); }), 0);
}

TEST_F(Count, AnotherVersionIsRefused) {
  static mg_counted_module module = {};
  module.version = MG_COUNT_VERSION + 1;
  module.source = "old.c";
  EXPECT_EXIT(__multigrain_count_register(&module), ::testing::ExitedWithCode(2),
              "old.c was compiled with -fmultigrain-count by another version of mgcc: compile it again");
}

TEST(CountClasses, HaveNames) {
  EXPECT_EQ(counting::class_names().size(), size_t{MG_COUNT_INSTRUCTIONS});
  EXPECT_EQ(counting::class_names()[MG_COUNT_CONVERT], "convert");
  EXPECT_EQ(counting::class_names()[MG_COUNT_ATOMIC], "atomic");
}

}  // namespace
}  // namespace multigrain::testing
