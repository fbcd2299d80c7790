// `explore placement` becomes this program.
#include "explore.h"
#include "placement_driver_world.h"
#include "placement_machine.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  namespace placement = multigrain::placement::explored;
  Explorable all{.protocol = "placement", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<placement::Scenario>& scenarios, bool takes_minutes) {
    for (const placement::Scenario& s : scenarios)
      all.scenarios.push_back({.name = s.name, .takes_minutes = takes_minutes, .explore = [s] {
                                 return explore_and_print<placement::Machine>(s, placement::kMaxStates);
                               }});
  };
  const auto add_driver = [&](const std::vector<placement::DriverScenario>& scenarios, bool takes_minutes) {
    for (const placement::DriverScenario& s : scenarios)
      all.scenarios.push_back(
          {.name = s.name, .takes_minutes = takes_minutes, .explore = [s] { return placement::explore(s); }});
  };
  add(placement::scenarios(), false);
  add(placement::long_scenarios(), true);
  add_driver(placement::driver_scenarios(), false);
  add_driver(placement::long_driver_scenarios(), true);
  for (const placement::Mutant m : placement::mutants())
    all.mutants.push_back({.name = placement::name(m), .refute = [m] {
                             return refute_and_print<placement::Machine>(placement::scenarios(), m,
                                                                         placement::kMaxStates);
                           }});
  for (const placement::Mutant m : placement::driver_mutants())
    all.mutants.push_back({.name = placement::name(m), .refute = [m] { return placement::refute(m); }});
  return {all};
}
