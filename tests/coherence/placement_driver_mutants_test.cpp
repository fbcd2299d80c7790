// These tests show that the exploration of the driver of placed pages can fail: each deliberate fault shows on one of the
// machines.
#include <gtest/gtest.h>

#include <string>

#include "exploration_test.h"
#include "placement_driver_world.h"

namespace multigrain::placement::explored {
namespace {

class PlacementDriverMutant : public testing::TestWithParam<Mutant> {};

TEST_P(PlacementDriverMutant, IsRefuted) {
  EXPECT_NE(refute(GetParam()), "") << "no machine refutes: " << name(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Placement, PlacementDriverMutant, testing::ValuesIn(driver_mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::placement::explored
