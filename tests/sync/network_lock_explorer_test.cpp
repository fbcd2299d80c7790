// This explores every order of every step of small machines that use one network lock (network_lock_world.h). The
// counts go to standard output.
#include <gtest/gtest.h>

#include "../coherence/exploration_test.h"
#include "network_lock_world.h"

namespace multigrain::network_lock_explored {
namespace {

class NetworkLockOrders : public testing::TestWithParam<Scenario> {};

TEST_P(NetworkLockOrders, Hold) {
  EXPECT_EQ(explore(GetParam()), "");
}

INSTANTIATE_TEST_SUITE_P(NetworkLock, NetworkLockOrders, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

}  // namespace
}  // namespace multigrain::network_lock_explored
