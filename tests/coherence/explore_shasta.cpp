// `explore shasta` becomes this program.
#include "driver_explorer.h"
#include "explore.h"
#include "shasta_driver_mutants.h"
#include "shasta_driver_scenarios.h"

namespace multigrain::shasta::explored {
namespace {

using exploring_driver::Explorer;

constexpr size_t kSamples = 2'000;

std::string explore(const Scenario& scenario) {
  const auto result = Explorer<World>(scenario, allowed_outcomes(scenario)).run();
  std::printf("%s\n", exploring::summary(scenario.name, result.report).c_str());
  return result.report.failure.empty() ? std::string() : result.report.failure + "\n" + result.report.trace;
}

std::string sample(const Scenario& scenario) {
  const auto result = Explorer<World>(scenario, allowed_outcomes(scenario)).sample(kSamples, 1);
  std::printf("%s: %zu executions, %zu outcomes\n", scenario.name.c_str(), result.executions, result.outcomes.size());
  return result.report.failure.empty() ? std::string() : result.report.failure + "\n" + result.report.trace;
}

std::string refute(const char* name, const Scenario& scenario) {
  const auto result = Explorer<World>(scenario, allowed_outcomes(scenario)).run();
  if (result.report.failure.empty()) return {};
  std::printf("%s | %s | %zu states | %s\n", name, scenario.name.c_str(), result.report.states,
              result.report.failure.c_str());
  return result.report.failure + "\n" + result.report.trace;
}

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "shasta", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<Scenario>& some, bool takes_minutes) {
    for (const Scenario& s : some)
      all.scenarios.push_back({.name = s.name, .takes_minutes = takes_minutes, .explore = [s] { return explore(s); }});
  };
  add(scenarios(), false);
  add(long_scenarios(), true);
  add(transition_scenarios(false), false);
  add(only_long(transition_scenarios), true);
  const auto add_litmus = [&](const std::vector<Scenario>& some, bool takes_minutes) {
    for (const Scenario& s : some)
      all.scenarios.push_back(
          {.name = s.name, .takes_minutes = takes_minutes, .explore = [s] { return check_litmus(s); }});
  };
  add_litmus(litmus(false), false);
  add_litmus(only_long(litmus), true);
  for (auto m = static_cast<unsigned>(Mutant::kNone) + 1; m < static_cast<unsigned>(Mutant::kCount); ++m) {
    const auto mutant = static_cast<Mutant>(m);
    all.mutants.push_back({.name = name(mutant), .refute = [mutant] {
                             g_mutant = mutant;
                             std::string how = refute(name(mutant), scenario_for(machine_for(mutant)));
                             g_mutant = Mutant::kNone;
                             return how;
                           }});
  }
  for (auto f = static_cast<unsigned>(Fault::kNone) + 1; f < static_cast<unsigned>(Fault::kCount); ++f) {
    const auto fault = static_cast<Fault>(f);
    all.mutants.push_back({.name = name(fault),
                           .refute = [fault] { return refute(name(fault), scenario_for(machine_for(fault), fault)); }});
  }
  all.random = [](unsigned seed) {
    return exploring::Explorable::Scenario{.name = random_scenario(seed).name,
                                           .takes_minutes = false,
                                           .explore = [seed] { return sample(random_scenario(seed)); }};
  };
  return all;
}

}  // namespace
}  // namespace multigrain::shasta::explored

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  return {shasta::explored::explorable()};
}
