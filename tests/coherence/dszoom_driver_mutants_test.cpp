// These tests show that the exploration of DSZOOM's driver can fail: each deliberate fault (dszoom_driver_mutants.h)
// shows on one of the machines, as a wrong value, an update that is lost, or a broken invariant.
#include <gtest/gtest.h>

#include "dszoom_scenarios.h"

namespace multigrain::dszoom::explored {
namespace {

class DszoomDriverMutant : public testing::TestWithParam<unsigned> {};

TEST_P(DszoomDriverMutant, IsRefuted) {
  const auto mutant = static_cast<Mutant>(GetParam());
  EXPECT_NE(refute(mutant), "") << "no machine refutes: " << name(mutant);
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomDriverMutant, testing::Range(1u, static_cast<unsigned>(Mutant::kCount)));

}  // namespace
}  // namespace multigrain::dszoom::explored
