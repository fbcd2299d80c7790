// That the exploration of Shasta's shell can fail: each deliberate fault shows on one of the machines.
#include "shasta_shell_mutants.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "shasta_shell_scenarios.h"
#include "shell_explorer.h"

namespace multigrain::shasta::explored {

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kTouchedBeforeLock:
      return "a handler looks whether a page is touched, and then takes the lock";
    case Mutant::kPublishesWithoutLock:
      return "a first touch publishes without the lock";
    case Mutant::kPageLockHeld:
      return "a first touch waits for the lock with the page's lock held";
    case Mutant::kClaimAlwaysWins:
      return "whoever claims a page takes itself for the home";
    case Mutant::kTouchedBeforeFlags:
      return "a page counts as touched before it is filled with flags";
    case Mutant::kDoesNotWaitForWindows:
      return "rights are lowered under open windows";
    case Mutant::kLoadsNotWaitedFor:
      return "windows of loads are not waited for";
    case Mutant::kWindowsBeforeWords:
      return "windows are waited for, and then words changed";
    case Mutant::kFirstWordOnly:
      return "of a block the first line's word alone is lowered";
    case Mutant::kNoFlags:
      return "an invalid frame keeps its data";
    case Mutant::kRecordRemovedEarly:
      return "a record is removed while something waits";
    case Mutant::kNobodyIsWoken:
      return "nobody is woken";
    case Mutant::kLooksLate:
      return "a thread lets go of the lock, and then says that it waits";
    case Mutant::kOpensWithoutLock:
      return "a granted window is opened without the lock";
    case Mutant::kOutstandingLate:
      return "fences learn of a store when it has been made";
    case Mutant::kCount:
      break;
  }
  return "?";
}

namespace {

using exploring_shell::Explorer;

// Explores machines until one refutes. A fault is found soon or not at all, so no machine is explored to its end.
void expect_to_be_refuted(const char* name, Fault fault) {
  constexpr size_t kMaxStates = 12'000;
  std::vector<Scenario> all = scenarios();
  for (Scenario& scenario : all) {
    scenario.fault = fault;
    const auto result = Explorer<World>(scenario, allowed_outcomes(scenario), kMaxStates).run();
    if (result.report.failure.empty() || result.report.failure.find("too many") != std::string::npos) continue;
    std::printf("%s | %s | %zu | %s\n", name, scenario.name.c_str(), result.executions, result.report.failure.c_str());
    std::fflush(stdout);
    return;
  }
  FAIL() << "no exploration refutes: " << name;
}

class ShastaShellMutant : public testing::TestWithParam<unsigned> {};

TEST_P(ShastaShellMutant, IsRefuted) {
  g_mutant = static_cast<Mutant>(GetParam());
  expect_to_be_refuted(name(g_mutant), Fault::kNone);
  g_mutant = Mutant::kNone;
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaShellMutant, testing::Range(1u, static_cast<unsigned>(Mutant::kCount)));

class ShastaShellFault : public testing::TestWithParam<unsigned> {};

TEST_P(ShastaShellFault, IsRefuted) {
  const auto fault = static_cast<Fault>(GetParam());
  expect_to_be_refuted(name(fault), fault);
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaShellFault, testing::Range(1u, static_cast<unsigned>(Fault::kCount)));

}  // namespace
}  // namespace multigrain::shasta::explored
