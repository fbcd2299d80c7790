// This explores the driver of sequentially consistent pages and its transitions (coherence/sc) on small machines, in
// every order of messages, of what threads do, and of the ends of holds. page_world.h says what a step is.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "driver_explorer.h"
#include "exploration_test.h"
#include "sc_driver_scenarios.h"

namespace multigrain::sc::explored {
namespace {

using exploring_driver::Explorer;

class ScOrders : public testing::TestWithParam<Scenario> {};

TEST_P(ScOrders, AreSequentiallyConsistent) {
  const std::set<Outcome> allowed = allowed_outcomes(GetParam());
  const auto result = Explorer<World>(GetParam(), allowed).run();
  std::printf("%s, %zu of %zu outcomes\n", exploring::summary(GetParam().name, result.report).c_str(),
              result.outcomes.size(), allowed.size());
  std::fflush(stdout);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
  // Every order was tried, so every outcome that a sequential memory can show has been seen.
  EXPECT_EQ(result.outcomes, allowed);
}

class ScSamples : public testing::TestWithParam<Scenario> {};

TEST_P(ScSamples, AreSequentiallyConsistent) {
  constexpr size_t kSamples = 5'000;
  const auto result = Explorer<World>(GetParam(), allowed_outcomes(GetParam())).sample(kSamples, 1);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
}

std::string test_name(const testing::TestParamInfo<Scenario>& tested) {
  return exploring::test_name(tested.param.name);
}
INSTANTIATE_TEST_SUITE_P(Sc, ScOrders, testing::ValuesIn(scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(Sc, ScSamples, testing::ValuesIn(long_scenarios()), test_name);

}  // namespace
}  // namespace multigrain::sc::explored
