// Explores every order of every step of small machines that use one network lock, and shows that the checks can fail:
// each mutant breaks one thing that network_lock.h relies on, and is refuted. The counts go to standard output.
#include <gtest/gtest.h>

#include "../coherence/exploration_test.h"
#include "network_lock_model.h"

namespace multigrain::network_lock_model {
namespace {

constexpr size_t kMaxStates = 4'000'000;
constexpr Op kLock = Op::kLock;
constexpr Op kTry = Op::kTry;
constexpr Op kTryUntil = Op::kTryUntil;

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const auto add = [&](const char* name, std::vector<unsigned> processors, std::vector<std::vector<Op>> programs,
                       uint8_t handoff_bound = 1) {
    for (const IntraNodeLock kind : {IntraNodeLock::kTicket, IntraNodeLock::kTestAndSet}) {
      // Where no node has two processors, it does not matter how they would queue.
      if (kind == IntraNodeLock::kTestAndSet && processors[0] != processors[1]) continue;
      Scenario scenario;
      scenario.name = fmt::format("{}, {}", name, kind == IntraNodeLock::kTicket ? "tickets" : "test and set");
      scenario.intra_node = kind;
      scenario.handoff_bound = handoff_bound;
      scenario.processors = processors;
      scenario.programs = programs;
      all.push_back(std::move(scenario));
    }
  };
  add("no hand-on while another node waits", {0, 0, 1}, {{kLock, kLock, kLock}, {kLock, kLock}, {kLock}}, 0);
  add("a chain of three nodes", {0, 1, 2}, {{kLock, kLock}, {kLock, kLock}, {kLock}});
  add("tries of three nodes", {0, 1, 2}, {{kTry, kTry}, {kTry, kTry}, {kTry, kTry}});
  add("three nodes, two processors on one", {0, 0, 1, 2}, {{kLock}, {kLock}, {kLock}, {kLock}});
  add("three nodes, two processors on one, which lock again", {0, 0, 1, 2},
      {{kLock, kLock}, {kLock}, {kLock}, {kLock}});
  add("three processors of a node hand on while another node waits", {0, 0, 0, 1},
      {{kLock, kLock}, {kLock}, {kLock}, {kLock}}, 1);
  add("tries and locks of three nodes", {0, 1, 2}, {{kTry, kLock}, {kLock, kTry}, {kLock, kLock}});
  add("a try of a node where another processor locks", {0, 0, 1, 2}, {{kTry}, {kLock, kLock}, {kLock}, {kTry}});
  add("tries until they succeed", {0, 0, 1, 2}, {{kTryUntil}, {kLock}, {kTryUntil}, {kLock}});
  return all;
}

class NetworkLockMachine : public testing::TestWithParam<Scenario> {};

TEST_P(NetworkLockMachine, HoldsInEveryOrder) {
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
}

INSTANTIATE_TEST_SUITE_P(NetworkLock, NetworkLockMachine, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

// What the mutant does wrong must show as two holders, a stale read, a waiter that waits for ever or too long, or a
// panic of the code.
class NetworkLockMutant : public testing::TestWithParam<Mutant> {};

TEST_P(NetworkLockMutant, IsRefuted) {
  exploring::expect_to_be_refuted<Machine>(scenarios(), GetParam(), kMaxStates);
}

INSTANTIATE_TEST_SUITE_P(NetworkLock, NetworkLockMutant,
                         testing::Values(Mutant::kTakeWhatIsHeld, Mutant::kSleepUnseen, Mutant::kNoWake,
                                         Mutant::kReleaseAfterSend, Mutant::kNoRelease, Mutant::kAcquireFromBefore,
                                         Mutant::kForgetWhatCame, Mutant::kForgetRequest, Mutant::kNoPassingOn,
                                         Mutant::kNoBound, Mutant::kResetAfterSwap, Mutant::kPlainFree,
                                         Mutant::kLeaveBeforeClear, Mutant::kQuietLeave, Mutant::kKeepFrom,
                                         Mutant::kHandOnWhatIsWanted));

}  // namespace
}  // namespace multigrain::network_lock_model
