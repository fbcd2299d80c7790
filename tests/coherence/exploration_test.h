// These functions turn the reports of explorations (explorer.h) into expectations of tests. The counts go to standard
// output.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <string>
#include <vector>

#include "explorer.h"

namespace multigrain::exploring {

// Makes a name that GoogleTest allows in a test's name.
inline std::string test_name(const std::string& name) {
  std::string out;
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

// Expects that the exploration of the scenario of that name was complete, and that every check held.
inline void expect_to_hold(const std::string& name, const Report& report) {
  std::printf("%s\n", summary(name, report).c_str());
  EXPECT_GT(report.ends, 0u);
  ASSERT_EQ(report.failure, "") << name << "\n" << report.trace;
}

// Expects that at least one of the scenarios refutes the mutant, with no more than `max_states` states.
template <typename Machine, typename Mutant>
void expect_to_be_refuted(const std::vector<typename Machine::Scenario>& scenarios, Mutant mutant, size_t max_states) {
  for (typename Machine::Scenario scenario : scenarios) {
    scenario.mutant = mutant;
    const Report report = explore<Machine>(scenario, max_states);
    if (report.failure.empty()) continue;
    EXPECT_EQ(report.failure.find("more than"), std::string::npos) << report.failure;
    std::printf("%s | %s | %zu | %s\n", name(mutant), scenario.name.c_str(), report.states, report.failure.c_str());
    return;
  }
  FAIL() << "no exploration refutes: " << name(mutant);
}

}  // namespace multigrain::exploring
