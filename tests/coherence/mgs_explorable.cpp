#include "mgs_explorable.h"

#include <cstdio>
#include <string>

#include "mgs_driver_world.h"
#include "mgs_random_programs.h"
#include "mgs_scenarios.h"

namespace multigrain::mgs::explored {
namespace {

// No machine has as many states as this.
constexpr size_t kMaxStates = 60'000'000;

}  // namespace

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "mgs", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<Scenario>& scenarios, bool takes_minutes) {
    for (const Scenario& s : scenarios)
      all.scenarios.push_back({.name = s.name, .takes_minutes = takes_minutes, .explore = [s] {
                                 const exploring::Report report = explore(s, kMaxStates);
                                 std::printf("%s\n", exploring::summary(s.name, report).c_str());
                                 return report.failure.empty() ? std::string() : report.failure + "\n" + report.trace;
                               }});
  };
  add(small_scenarios(), false);
  add(one_sided_scenarios(), false);
  add(table_scenarios(), false);
  add(large_scenarios(), true);
  for (const Mutant m : mutants())
    all.mutants.push_back({.name = name(m), .refute = [m] {
                             return exploring::refute_and_print<Machine>({scenario_that_refutes(m)}, m, kMaxStates);
                           }});
  all.random = [](unsigned seed) {
    return exploring::Explorable::Scenario{
        .name = "seed " + std::to_string(seed), .takes_minutes = false, .explore = [seed]() -> std::string {
          for (const bool one_sided : {false, true}) {
            const Scenario scenario = random_scenario(seed, one_sided);
            const Run run = simulate(scenario, seed);
            std::printf("%s: %llu steps, %llu of them messages\n", scenario.name.c_str(),
                        static_cast<unsigned long long>(run.events), static_cast<unsigned long long>(run.messages));
            if (run.failure.empty()) continue;
            std::string log;
            static_cast<void>(simulate(scenario, seed, &log));
            return run.failure + "\n" + log;
          }
          return {};
        }};
  };
  return all;
}

}  // namespace multigrain::mgs::explored
