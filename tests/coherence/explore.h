// A protocol offers this to the command `explore` (explore.cpp): its machines, and the mutants that they refute.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "explorer.h"

namespace multigrain::exploring {

struct Explorable {
  struct Scenario {
    std::string name;
    bool takes_minutes = false;  // the tests leave the machine out
    // Explores the machine, and prints how many states there were. Returns what is wrong, with the events that led
    // there, or nothing if every check held.
    std::function<std::string()> explore;
  };
  struct Mutant {
    std::string name;
    // Explores a machine that refutes the mutant. Prints which machine that is, how many states there were, and as what
    // the fault was found. Returns the events that led there, or nothing if the mutant was not refuted.
    std::function<std::string()> refute;
  };

  std::string protocol;
  std::vector<Scenario> scenarios;
  std::vector<Mutant> mutants;
  // Makes the machine with the random programs of a seed. Empty if the protocol has no random programs.
  std::function<Scenario(unsigned seed)> random;
};

// Returns the protocols with which the program `explore` is built.
[[nodiscard]] std::vector<Explorable> explorables();

// This is for every protocol that has a Machine as explorer.h describes it.
template <typename Machine>
std::string explore_and_print(const typename Machine::Scenario& scenario, size_t max_states) {
  const Report report = explore<Machine>(scenario, max_states);
  std::printf("%s\n", summary(scenario.name, report).c_str());
  return report.failure.empty() ? std::string() : report.failure + "\n" + report.trace;
}
template <typename Machine>
std::string refute_and_print(const std::vector<typename Machine::Scenario>& scenarios,
                             decltype(Machine::Scenario::mutant) mutant, size_t max_states) {
  for (typename Machine::Scenario scenario : scenarios) {
    scenario.mutant = mutant;
    const Report report = explore<Machine>(scenario, max_states);
    if (report.failure.empty()) continue;
    std::printf("%s | %s | %zu states | %s\n", name(mutant), scenario.name.c_str(), report.states,
                report.failure.c_str());
    return report.failure + "\n" + report.trace;
  }
  return {};
}

}  // namespace multigrain::exploring
