// This explores Shasta's driver (coherence/shasta/driver.cpp) on small machines, in every order of messages and of the
// accesses of memory that threads share, first touches included, and on larger machines with a transition as one step.
// shasta_driver_world.h says what a step is.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "driver_explorer.h"
#include "exploration_test.h"
#include "shasta_driver_scenarios.h"

namespace multigrain::shasta::explored {
namespace {

using exploring_driver::Explorer;

constexpr size_t kSamples = 5'000;

class ShastaDriverOrders : public testing::TestWithParam<Scenario> {};

TEST_P(ShastaDriverOrders, ShowWhatTheModelAllows) {
  const std::set<programs::Outcome> allowed = allowed_outcomes(GetParam());
  const auto result = Explorer<World>(GetParam(), allowed).run();
  std::printf("%s, %zu of %zu outcomes\n", exploring::summary(GetParam().name, result.report).c_str(),
              result.outcomes.size(), allowed.size());
  std::fflush(stdout);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
  // Every order was tried, so every outcome that a sequential memory can show has been seen. For a batch that excludes
  // what only accesses one by one can show, and under rc what only other homes can show.
  if (GetParam().machine.model == Model::kSc && !has_batch(GetParam())) {
    EXPECT_EQ(result.outcomes, allowed);
  }
}

class ShastaDriverTransitions : public testing::TestWithParam<Scenario> {};

TEST_P(ShastaDriverTransitions, ShowWhatTheModelAllows) {
  const auto result = Explorer<World>(GetParam(), allowed_outcomes(GetParam())).run();
  std::printf("%s, %zu outcomes\n", exploring::summary(GetParam().name, result.report).c_str(), result.outcomes.size());
  std::fflush(stdout);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
}

class ShastaDriverLitmus : public testing::TestWithParam<Scenario> {};

// This checks both ways: the outcomes that the model forbids are never observed, and those that it allows all are.
TEST_P(ShastaDriverLitmus, ShowsExactlyWhatTheModelAllows) {
  EXPECT_EQ(check_litmus(GetParam()), "");
}

class ShastaDriverSamples : public testing::TestWithParam<Scenario> {};

TEST_P(ShastaDriverSamples, ShowWhatTheModelAllows) {
  const auto result = Explorer<World>(GetParam(), allowed_outcomes(GetParam())).sample(kSamples, 1);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
}

std::string test_name(const testing::TestParamInfo<Scenario>& tested) {
  return exploring::test_name(tested.param.name);
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaDriverOrders, testing::ValuesIn(scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(Shasta, ShastaDriverTransitions, testing::ValuesIn(transition_scenarios(false)), test_name);
INSTANTIATE_TEST_SUITE_P(Shasta, ShastaDriverLitmus, testing::ValuesIn(litmus(false)), test_name);
INSTANTIATE_TEST_SUITE_P(Shasta, ShastaDriverSamples, testing::ValuesIn(long_scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, ShastaDriverOrders, testing::ValuesIn(long_scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, ShastaDriverTransitions, testing::ValuesIn(only_long(transition_scenarios)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, ShastaDriverLitmus, testing::ValuesIn(only_long(litmus)), test_name);

}  // namespace
}  // namespace multigrain::shasta::explored
