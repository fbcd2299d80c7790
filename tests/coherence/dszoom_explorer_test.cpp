// Explores every order of every step of small machines running DSZOOM, and shows that the checks can fail: each mutant
// breaks one thing that docs/internals/dszoom.md relies on, and is refuted. The counts go to standard output.
#include <gtest/gtest.h>

#include "dszoom_scenarios.h"
#include "exploration_test.h"

namespace multigrain::dszoom::model {
namespace {

class DszoomSmallMachine : public testing::TestWithParam<Scenario> {};

TEST_P(DszoomSmallMachine, HoldsInEveryOrder) {
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomSmallMachine, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(DszoomCaches, DszoomSmallMachine, testing::ValuesIn(scenarios_with_rights_cache()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

// What the mutant does wrong must show as a wrong value, an update that is lost, or a broken invariant.
class DszoomMutant : public testing::TestWithParam<Mutant> {};

TEST_P(DszoomMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios(), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomMutant, testing::ValuesIn(mutants()));

class DszoomCachingMutant : public testing::TestWithParam<Mutant> {};

TEST_P(DszoomCachingMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios_with_rights_cache(), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomCachingMutant, testing::ValuesIn(mutants_of_rights_cache()));

}  // namespace
}  // namespace multigrain::dszoom::model
