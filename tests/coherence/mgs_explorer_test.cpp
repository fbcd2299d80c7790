// Explores every order of every message of the small machines of mgs_scenarios.cpp. The counts go to standard output.
#include "mgs_explorer.h"

#include <gtest/gtest.h>

#include "exploration_test.h"
#include "mgs_scenarios.h"

namespace multigrain::mgs::model {
namespace {

constexpr size_t kMaxStates = 3'000'000;

class EverySmallMachine : public testing::TestWithParam<Scenario> {};

TEST_P(EverySmallMachine, HoldsInEveryOrder) {
  for (const Scenario& scenario : variants(GetParam())) {
    exploring::expect_to_hold(scenario.name, explore(scenario, kMaxStates));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Mgs, EverySmallMachine, testing::ValuesIn(small_scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

}  // namespace
}  // namespace multigrain::mgs::model
