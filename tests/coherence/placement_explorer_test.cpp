// This explores the transitions of placed pages (coherence/placement) on small machines, in every order of messages, accesses and
// ends of holds, and with every answer of the policy. placement_machine.h says what a step is.
#include <gtest/gtest.h>

#include "exploration_test.h"
#include "placement_machine.h"

namespace multigrain::placement::explored {
namespace {

class PlacementOrders : public testing::TestWithParam<Scenario> {};

TEST_P(PlacementOrders, AreSequentiallyConsistent) {
  Machine::start_outcomes();
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
  // Every order was tried, so every outcome that a sequential memory can show has been seen.
  EXPECT_EQ(Machine::outcomes(), allowed_outcomes(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Placement, PlacementOrders, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

}  // namespace
}  // namespace multigrain::placement::explored
