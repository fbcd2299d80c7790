// Explores every order of every step of small machines running HLRC, and shows that the checks can fail: each mutant
// breaks one thing that docs/internals/hlrc.md relies on, and is refuted. The counts go to standard output.
#include <gtest/gtest.h>

#include "exploration_test.h"
#include "hlrc_explorable.h"
#include "hlrc_scenarios.h"

namespace multigrain::hlrc::model {
namespace {

class HlrcSmallMachine : public testing::TestWithParam<Scenario> {};

TEST_P(HlrcSmallMachine, HoldsInEveryOrder) {
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
}

INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcSmallMachine, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

// What the mutant does wrong must show as a wrong value, an update that is lost, or a broken invariant.
class HlrcMutant : public testing::TestWithParam<Mutant> {};

TEST_P(HlrcMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios(), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcMutant, testing::ValuesIn(mutants()));

}  // namespace
}  // namespace multigrain::hlrc::model
