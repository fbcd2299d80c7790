#include "mgs_explorable.h"

#include "mgs_explorer.h"
#include "mgs_scenarios.h"

namespace multigrain::mgs::model {
namespace {

// More states than any of the machines has.
constexpr size_t kMaxStates = 30'000'000;

// The scenario under each way of running it.
std::string explore_variants(const Scenario& scenario) {
  for (const Scenario& variant : variants(scenario)) {
    const Report report = explore(variant, kMaxStates);
    std::printf("%s\n", summary(variant, report).c_str());
    std::fflush(stdout);
    if (!report.failure.empty()) return report.failure + "\n" + report.trace;
  }
  return {};
}

std::string refute(Mutant mutant) {
  const Scenario scenario = scenario_that_refutes(mutant);
  const Report report = explore(scenario, kMaxStates);
  if (report.failure.empty()) return {};
  std::printf("%s | %s | %zu states | %s\n", name(mutant), scenario.name.c_str(), report.states,
              report.failure.c_str());
  return report.failure + "\n" + report.trace;
}

}  // namespace

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "mgs", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<Scenario>& scenarios, bool takes_minutes) {
    for (const Scenario& s : scenarios)
      all.scenarios.push_back(
          {.name = s.name, .takes_minutes = takes_minutes, .explore = [s] { return explore_variants(s); }});
  };
  add(small_scenarios(), false);
  add(large_scenarios(), true);
  for (const Mutant m : mutants()) all.mutants.push_back({.name = name(m), .refute = [m] { return refute(m); }});
  return all;
}

}  // namespace multigrain::mgs::model
