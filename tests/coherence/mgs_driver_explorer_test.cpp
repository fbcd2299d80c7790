// This explores MGS's driver (coherence/mgs/driver.cpp) on small machines (mgs_scenarios.cpp), in every order of
// messages and of the accesses that threads of a node share. mgs_driver_world.h says what a step is. The counts go to
// standard output.
#include <gtest/gtest.h>

#include "exploration_test.h"
#include "mgs_driver_world.h"
#include "mgs_scenarios.h"

namespace multigrain::mgs::explored {
namespace {

constexpr size_t kMaxStates = 3'000'000;

class MgsDriverOrders : public testing::TestWithParam<Scenario> {};

TEST_P(MgsDriverOrders, Hold) {
  exploring::expect_to_hold(GetParam().name, explore(GetParam(), kMaxStates));
}

// If states that differ in what can follow were taken for one, it would matter which of them comes first.
TEST(MgsDriverStates, AreAsManyInEachOrderOfTheExploration) {
  for (const char* name :
       {"two releases of one node", "the home writes", "reader upgrades while the sole writer releases",
        "a read while a writer releases", "reading ahead", "a queue for each processor"}) {
    const Scenario scenario = scenario_named(name);
    const exploring::Report broad = exploring::explore<Machine>(scenario, kMaxStates);
    const exploring::Report deep = exploring::explore<Machine>(scenario, kMaxStates, exploring::Order::kDepthFirst);
    EXPECT_EQ(broad.states, deep.states) << name;
    EXPECT_EQ(broad.transitions, deep.transitions) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Mgs, MgsDriverOrders, testing::ValuesIn(small_scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });
INSTANTIATE_TEST_SUITE_P(Tables, MgsDriverOrders, testing::ValuesIn(table_scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });
INSTANTIATE_TEST_SUITE_P(OneSided, MgsDriverOrders, testing::ValuesIn(one_sided_scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

}  // namespace
}  // namespace multigrain::mgs::explored
