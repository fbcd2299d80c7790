// That the exploration of DSZOOM's driver can fail: each deliberate fault (dszoom_driver_mutants.h) shows on one of the machines,
// as a wrong value, an update that is lost, or a broken invariant.
#include <gtest/gtest.h>

#include <cstdio>

#include "driver_explorer.h"
#include "dszoom_scenarios.h"
#include "exploration_test.h"

namespace multigrain::dszoom::explored {
namespace {

class DszoomDriverMutant : public testing::TestWithParam<unsigned> {};

TEST_P(DszoomDriverMutant, IsRefuted) {
  const auto mutant = static_cast<Mutant>(GetParam());
  for (const Scenario& scenario : scenarios_for(mutant)) {
    const auto result = exploring_driver::Explorer<World>(scenario, sequential_outcomes(scenario)).run();
    if (result.report.failure.empty()) continue;
    EXPECT_EQ(result.report.failure.find("too many"), std::string::npos) << result.report.failure;
    std::printf("| %s | %s | %zu | %s |\n", name(mutant), scenario.name.c_str(), result.report.states,
                result.report.failure.c_str());
    return;
  }
  FAIL() << "no exploration refutes: " << name(mutant);
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomDriverMutant, testing::Range(1u, static_cast<unsigned>(Mutant::kCount)));

}  // namespace
}  // namespace multigrain::dszoom::explored
