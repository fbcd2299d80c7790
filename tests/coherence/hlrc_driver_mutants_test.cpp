// That the exploration of HLRC's driver can fail: each deliberate fault shows on one of the machines.
#include <gtest/gtest.h>

#include "exploration_test.h"
#include "hlrc_driver_world.h"
#include "hlrc_explorable.h"

namespace multigrain::hlrc::explored {
namespace {

class HlrcDriverMutant : public testing::TestWithParam<Mutant> {};

TEST_P(HlrcDriverMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios_of(GetParam()), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcDriverMutant, testing::ValuesIn(mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::hlrc::explored
