// These tests show that the exploration of network locks can fail: the effect of each deliberate fault shows as two
// holders, a stale read, a waiter that waits for ever or too long, or a check of the locks that fails.
#include <gtest/gtest.h>

#include "../coherence/exploration_test.h"
#include "network_lock_world.h"

namespace multigrain::network_lock_explored {
namespace {

class NetworkLockMutant : public testing::TestWithParam<Mutant> {};

TEST_P(NetworkLockMutant, IsRefuted) {
  EXPECT_NE(refute(GetParam()), "") << "no machine refutes: " << name(GetParam());
}

INSTANTIATE_TEST_SUITE_P(NetworkLock, NetworkLockMutant, testing::ValuesIn(mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::network_lock_explored
