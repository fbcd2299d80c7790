// `explore sc` becomes this program.
#include "explore.h"
#include "sc_driver_scenarios.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  namespace sc = multigrain::sc::explored;
  Explorable all{.protocol = "sc", .scenarios = {}, .mutants = {}, .random = {}};
  const auto add = [&](const std::vector<sc::Scenario>& scenarios, bool takes_minutes) {
    for (const sc::Scenario& s : scenarios)
      all.scenarios.push_back(
          {.name = s.name, .takes_minutes = takes_minutes, .explore = [s] { return sc::explore(s); }});
  };
  add(sc::scenarios(), false);
  add(sc::long_scenarios(), true);
  for (const sc::Mutant m : sc::mutants())
    all.mutants.push_back({.name = sc::name(m), .refute = [m] { return sc::refute(m); }});
  return {all};
}
