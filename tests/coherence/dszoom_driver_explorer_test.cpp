// This explores DSZOOM's driver (coherence/dszoom/*.cpp) on three nodes and two lines, in every order of its remote
// operations and of the accesses of memory that nodes share. dszoom_driver_world.h says what a step is.
#include <gtest/gtest.h>

#include <cstdio>

#include "driver_explorer.h"
#include "dszoom_scenarios.h"
#include "exploration_test.h"

namespace multigrain::dszoom::explored {
namespace {

class DszoomDriverOrders : public testing::TestWithParam<Scenario> {};

TEST_P(DszoomDriverOrders, HoldAndAreSequentiallyConsistent) {
  const auto result = exploring_driver::Explorer<World>(GetParam(), sequential_outcomes(GetParam())).run();
  exploring::expect_to_hold(GetParam().name, result.report);
  // Every order was tried, so every outcome that a sequential memory can show has been seen.
  EXPECT_EQ(result.outcomes, sequential_outcomes(GetParam()));
}

std::string test_name(const testing::TestParamInfo<Scenario>& tested) {
  return exploring::test_name(tested.param.name);
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomDriverOrders, testing::ValuesIn(scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, DszoomDriverOrders, testing::ValuesIn(long_scenarios()), test_name);

}  // namespace
}  // namespace multigrain::dszoom::explored
