// These tests show that the exploration of placed pages can fail: each deliberate fault shows on one of the machines.
#include <gtest/gtest.h>

#include "exploration_test.h"
#include "placement_machine.h"

namespace multigrain::placement::explored {
namespace {

class PlacementMutant : public testing::TestWithParam<Mutant> {};

TEST_P(PlacementMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios(), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(Placement, PlacementMutant, testing::ValuesIn(mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::placement::explored
