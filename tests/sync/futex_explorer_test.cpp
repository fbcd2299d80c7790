// Explores every order of every step of small machines that use futexes. The counts go to standard output.
#include <gtest/gtest.h>

#include "../coherence/exploration_test.h"
#include "futex_scenarios.h"

namespace multigrain::futex_model {
namespace {

constexpr size_t kMaxStates = 8'000'000;

class FutexMachine : public testing::TestWithParam<Scenario> {};

TEST_P(FutexMachine, HoldsInEveryOrder) {
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
}

INSTANTIATE_TEST_SUITE_P(Futex, FutexMachine, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

}  // namespace
}  // namespace multigrain::futex_model
