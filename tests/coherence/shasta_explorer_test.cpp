// Explores every order of every step of small machines running Shasta under each memory model, compares what litmus
// programs can observe with what the model allows, and shows that the checks can fail: each mutant breaks one thing
// that docs/internals/shasta.md relies on, and is refuted. The counts go to standard output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "exploration_test.h"
#include "shasta_scenarios.h"

namespace multigrain::shasta::model {
namespace {

constexpr size_t kMaxStates = 2'000'000;

class ShastaSmallMachine : public testing::TestWithParam<Scenario> {};

TEST_P(ShastaSmallMachine, HoldsInEveryOrder) {
  exploring::expect_to_hold(GetParam().name, exploring::explore<Machine>(GetParam(), kMaxStates));
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaSmallMachine, testing::ValuesIn(scenarios(false)),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

class ShastaLitmus : public testing::TestWithParam<Scenario> {};

// Both ways: what the model forbids is never observed, and what it allows really can be.
TEST_P(ShastaLitmus, ShowsExactlyWhatTheModelAllows) {
  const std::string failure = check_litmus(GetParam(), kMaxStates);
  EXPECT_EQ(failure, "");
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaLitmus, testing::ValuesIn(litmus(false)),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

class ShastaMutant : public testing::TestWithParam<Mutant> {};

TEST_P(ShastaMutant, IsRefuted) {
  const auto [scenario, reason] = refuting(GetParam());
  Scenario mutated = scenario;
  mutated.mutant = GetParam();
  const Outcomes allowed = mutated.allowed == nullptr ? Outcomes{} : reference(scenario);
  if (mutated.allowed != nullptr) mutated.allowed = &allowed;
  const exploring::Report report = exploring::explore<Machine>(mutated, kMaxStates);
  std::printf("| %s | %s | %zu | %s |\n", name(GetParam()), scenario.name.c_str(), report.states,
              report.failure.c_str());
  EXPECT_NE(report.failure.find(reason), std::string::npos) << report.failure << "\n" << report.trace;
  // The same machine without the fault.
  mutated.mutant = Mutant::kNone;
  EXPECT_EQ(exploring::explore<Machine>(mutated, kMaxStates).failure, "");
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaMutant, testing::ValuesIn(mutants()),
                         [](const auto& tested) { return exploring::test_name(name(tested.param)); });

}  // namespace
}  // namespace multigrain::shasta::model
