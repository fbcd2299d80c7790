// HLRC's driver (coherence/hlrc/driver.cpp) on the machines and programs on which its model is explored, in hundreds of
// orders of its steps, the same in each run: hlrc_driver_world.h says what a step is. The model tries every order of
// coarser steps, of a second description of the driver (hlrc_explorer_test); here is the driver itself.
#include <gtest/gtest.h>

#include <cstdio>

#include "driver_explorer.h"
#include "exploration_test.h"
#include "hlrc_driver_world.h"
#include "hlrc_scenarios.h"

namespace multigrain::hlrc::explored {
namespace {

using exploring_driver::Explorer;

constexpr size_t kExecutions = 300;
constexpr size_t kExecutionsOfMutant = 2000;
constexpr uint64_t kSeed = 1;

// Rings of the size that ships do not go round in these programs.
std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  for (const model::Scenario& each : model::scenarios())
    if (each.log_capacity == model::Scenario{}.log_capacity &&
        each.fetch_log_capacity == model::Scenario{}.fetch_log_capacity)
      all.push_back({each});
  return all;
}

exploring::Report sample(const Scenario& scenario, size_t executions) {
  return Explorer<World>(scenario, {World::Outcome{}}).sample(executions, kSeed).report;
}

class HlrcDriverOrders : public testing::TestWithParam<Scenario> {};

TEST_P(HlrcDriverOrders, HoldInEverySample) {
  const exploring::Report report = sample(GetParam(), kExecutions);
  EXPECT_EQ(report.failure, "") << report.trace;
}

INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcDriverOrders, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return exploring::test_name(tested.param.name); });

class HlrcDriverMutant : public testing::TestWithParam<Mutant> {};

TEST_P(HlrcDriverMutant, IsRefuted) {
  for (Scenario scenario : scenarios()) {
    scenario.broken = GetParam();
    const exploring::Report report = sample(scenario, kExecutionsOfMutant);
    if (report.failure.empty()) continue;
    std::printf("%s | %s | %s\n", name(GetParam()), scenario.name.c_str(), report.failure.c_str());
    return;
  }
  FAIL() << "no sample refutes: " << name(GetParam());
}

// Not kLateNotices, which does no harm: a reader that does not find an entry invalidates all that it has.
INSTANTIATE_TEST_SUITE_P(Hlrc, HlrcDriverMutant,
                         testing::Values(Mutant::kNoFetchLog, Mutant::kFetchBeforeLog, Mutant::kDepositsNotWaited,
                                         Mutant::kLateProtection, Mutant::kNotInvalidated, Mutant::kNoTimestamp,
                                         Mutant::kOnlyReleaser));

}  // namespace
}  // namespace multigrain::hlrc::explored
