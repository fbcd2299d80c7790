// These tests show that the exploration of sequentially consistent pages can fail: each deliberate fault shows on one
// of the machines.
#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "exploration_test.h"
#include "sc_driver_scenarios.h"

namespace multigrain::sc::explored {
namespace {

class ScMutant : public testing::TestWithParam<Mutant> {};

TEST_P(ScMutant, IsRefuted) {
  EXPECT_NE(refute(GetParam()), "") << "no machine refutes: " << name(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sc, ScMutant, testing::ValuesIn(mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::sc::explored
