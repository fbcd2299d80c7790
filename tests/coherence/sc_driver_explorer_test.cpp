// Sequentially consistent pages: the driver and its transitions (coherence/sc) on small machines, in every order of
// messages, of what threads do, and of the ends of holds: sc_driver_world.h says what a step is. And that this
// exploration can fail: each deliberate fault (sc_mutants.h) shows on one of the machines.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "driver_explorer.h"
#include "exploration_test.h"
#include "sc_scenarios.h"

namespace multigrain::sc::explored {
namespace {

using exploring_driver::Explorer;

class ScOrders : public testing::TestWithParam<Scenario> {};

TEST_P(ScOrders, AreSequentiallyConsistent) {
  const std::set<Outcome> allowed = allowed_outcomes(GetParam());
  const auto result = Explorer<World>(GetParam(), allowed).run();
  std::printf("%s, %zu executions, %zu of %zu outcomes\n", exploring::summary(GetParam().name, result.report).c_str(),
              result.executions, result.outcomes.size(), allowed.size());
  std::fflush(stdout);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
  // Every order was tried: so all that a sequential memory can show has been seen.
  EXPECT_EQ(result.outcomes, allowed);
}

class ScSamples : public testing::TestWithParam<Scenario> {};

TEST_P(ScSamples, AreSequentiallyConsistent) {
  constexpr size_t kSamples = 5'000;
  const auto result = Explorer<World>(GetParam(), allowed_outcomes(GetParam())).sample(kSamples, 1);
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
}

class ScMutant : public testing::TestWithParam<Mutant> {};

TEST_P(ScMutant, IsRefuted) {
  constexpr size_t kMostStates = 100'000;
  for (Scenario scenario : scenarios()) {
    scenario.mutant = GetParam();
    const auto result = Explorer<World>(scenario, allowed_outcomes(scenario), kMostStates).run();
    if (result.report.failure.empty() || result.report.failure.starts_with("too many states")) continue;
    std::printf("%s | %s | %zu states | %s\n", name(GetParam()), scenario.name.c_str(), result.report.states,
                result.report.failure.c_str());
    return;
  }
  FAIL() << "no machine refutes: " << name(GetParam());
}

std::string test_name(const testing::TestParamInfo<Scenario>& tested) {
  return exploring::test_name(tested.param.name);
}
std::string mutant_name(const testing::TestParamInfo<Mutant>& tested) {
  return exploring::test_name(name(tested.param));
}
std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (int m = 1; m < static_cast<int>(Mutant::kCount); ++m) all.push_back(static_cast<Mutant>(m));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sc, ScOrders, testing::ValuesIn(scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(Sc, ScSamples, testing::ValuesIn(long_scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, ScOrders, testing::ValuesIn(long_scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(Sc, ScMutant, testing::ValuesIn(mutants()), mutant_name);

}  // namespace
}  // namespace multigrain::sc::explored
