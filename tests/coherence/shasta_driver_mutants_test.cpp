// These tests show that the exploration of Shasta's driver can fail: each deliberate fault shows on one of the
// machines.
#include "shasta_driver_mutants.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "driver_explorer.h"
#include "shasta_driver_scenarios.h"

namespace multigrain::shasta::explored {

namespace {

using exploring_driver::Explorer;

void expect_to_be_refuted(const char* name, const Scenario& scenario) {
  const auto result = Explorer<World>(scenario, allowed_outcomes(scenario)).run();
  ASSERT_NE(result.report.failure, "") << "the exploration does not refute: " << name;
  EXPECT_EQ(result.report.failure.find("too many"), std::string::npos) << result.report.failure;
  std::printf("%s | %s | %zu | %s\n", name, scenario.name.c_str(), result.report.states, result.report.failure.c_str());
  std::fflush(stdout);
}

class ShastaDriverMutant : public testing::TestWithParam<unsigned> {};

TEST_P(ShastaDriverMutant, IsRefuted) {
  g_mutant = static_cast<Mutant>(GetParam());
  expect_to_be_refuted(name(g_mutant), scenario_for(machine_for(g_mutant)));
  g_mutant = Mutant::kNone;
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaDriverMutant, testing::Range(1u, static_cast<unsigned>(Mutant::kCount)));

class ShastaDriverFault : public testing::TestWithParam<unsigned> {};

TEST_P(ShastaDriverFault, IsRefuted) {
  const auto fault = static_cast<Fault>(GetParam());
  expect_to_be_refuted(name(fault), scenario_for(machine_for(fault), fault));
}

INSTANTIATE_TEST_SUITE_P(Shasta, ShastaDriverFault, testing::Range(1u, static_cast<unsigned>(Fault::kCount)));

}  // namespace
}  // namespace multigrain::shasta::explored
