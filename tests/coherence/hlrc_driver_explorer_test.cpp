// HLRC's driver (coherence/hlrc) on small machines, in every order of its steps: hlrc_driver_world.h says what a step is.
// The counts go to standard output.
#include <gtest/gtest.h>

#include "exploration_test.h"
#include "hlrc_driver_world.h"
#include "hlrc_explorable.h"

namespace multigrain::hlrc::explored {
namespace {

class HlrcDriverOrders : public testing::TestWithParam<Scenario> {};

TEST_P(HlrcDriverOrders, Hold) {
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
}

INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcDriverOrders, testing::ValuesIn(short_scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

// R1 and R2 leave no order out that leads to another end: programs end in as many states with all of the others.
class HlrcDriverReduction : public testing::TestWithParam<Scenario> {};

TEST_P(HlrcDriverReduction, LeavesNoEndOut) {
  Scenario all = GetParam();
  all.is_reduced = false;
  const exploring::Report reduced = exploring::explore<Machine>(GetParam(), kMaxStates);
  const exploring::Report full = exploring::explore<Machine>(all, kMaxStates);
  exploring::expect_to_hold(all.name, full);
  EXPECT_EQ(reduced.ends, full.ends);
  EXPECT_LT(reduced.states, full.states);
}

// Those that have few orders.
std::vector<Scenario> small_scenarios() {
  const Op read0{OpType::kRead, 0, 0, 0}, read1{OpType::kRead, 0, 1, 0};
  const Op write0{OpType::kWrite, 0, 0, 1}, write1{OpType::kWrite, 0, 1, 2};
  const Op lock{OpType::kLock}, unlock{OpType::kUnlock}, barrier{OpType::kBarrier};
  Scenario home;
  home.name = "a node fetches a page that its home writes";
  home.homes = {0};
  home.processors = {0, 1};
  home.programs = {{lock, write0, unlock, lock, unlock}, {read1, lock, read0, unlock}};
  Scenario sharing = home;
  sharing.name = "false sharing of a page with its home, by a lock";
  sharing.programs = {{lock, write0, unlock, lock, read1, unlock}, {lock, write1, unlock, lock, read0, unlock}};
  Scenario together = home;
  together.name = "two processors of a node";
  together.homes = {1};
  together.processors = {0, 0};
  together.programs = {{write0, barrier, read1}, {write1, barrier, read0}};
  return {home, sharing, together};
}

INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcDriverReduction, testing::ValuesIn(small_scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

}  // namespace
}  // namespace multigrain::hlrc::explored
