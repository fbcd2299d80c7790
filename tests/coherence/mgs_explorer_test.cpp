// Explores every order of every message of the small machines of mgs_scenarios.cpp. The counts go to standard output.
#include "mgs_explorer.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "mgs_scenarios.h"

namespace multigrain::mgs::model {
namespace {

constexpr size_t kMaxStates = 3'000'000;

class EverySmallMachine : public testing::TestWithParam<Scenario> {};

TEST_P(EverySmallMachine, HoldsInEveryOrder) {
  for (const Scenario& scenario : variants(GetParam())) {
    const Report report = explore(scenario, kMaxStates);
    std::printf("%s\n", summary(scenario, report).c_str());
    EXPECT_GT(report.ends, 0u);
    ASSERT_EQ(report.failure, "") << scenario.name << "\n" << report.trace;
  }
}

std::string test_name(const testing::TestParamInfo<Scenario>& info) {
  std::string out;
  for (const char c : info.param.name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

INSTANTIATE_TEST_SUITE_P(Mgs, EverySmallMachine, testing::ValuesIn(small_scenarios()), test_name);

}  // namespace
}  // namespace multigrain::mgs::model
