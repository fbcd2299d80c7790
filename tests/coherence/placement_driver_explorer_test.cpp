// This explores the driver of placed pages and its transitions (coherence/placement) on small machines, in every order of
// messages, of what threads do, and of the ends of holds, and with every answer of the policy. page_world.h and
// placement_driver_world.h say what a step is.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "driver_explorer.h"
#include "exploration_test.h"
#include "placement_driver_world.h"

namespace multigrain::placement::explored {
namespace {

using exploring_driver::Explorer;

class PlacementDriverOrders : public testing::TestWithParam<DriverScenario> {};

TEST_P(PlacementDriverOrders, AreSequentiallyConsistent) {
  const std::set<World::Outcome> allowed = allowed_outcomes(GetParam());
  const auto result = Explorer<World>(GetParam(), allowed).run();
  std::printf("%s, %zu of %zu outcomes\n", exploring::summary(GetParam().name, result.report).c_str(),
              result.outcomes.size(), allowed.size());
  std::fflush(stdout);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
  // Every order was tried, so every outcome that a sequential memory can show has been seen.
  EXPECT_EQ(result.outcomes, allowed);
}

class PlacementDriverSamples : public testing::TestWithParam<DriverScenario> {};

TEST_P(PlacementDriverSamples, AreSequentiallyConsistent) {
  constexpr size_t kSamples = 5'000;
  const auto result = Explorer<World>(GetParam(), allowed_outcomes(GetParam())).sample(kSamples, 1);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
}

std::string test_name(const testing::TestParamInfo<DriverScenario>& tested) {
  return exploring::test_name(tested.param.name);
}
INSTANTIATE_TEST_SUITE_P(Placement, PlacementDriverOrders, testing::ValuesIn(driver_scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(Placement, PlacementDriverSamples, testing::ValuesIn(long_driver_scenarios()), test_name);

}  // namespace
}  // namespace multigrain::placement::explored
