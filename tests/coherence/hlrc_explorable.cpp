#include "hlrc_explorable.h"

#include "hlrc_driver_world.h"

namespace multigrain::hlrc::explored {

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "hlrc", .scenarios = {}, .mutants = {}, .random = {}};
  const auto explorable = [](const Scenario& s) {
    return exploring::Explorable::Scenario{.name = s.name, .takes_minutes = s.takes_minutes, .explore = [s] {
                                             return exploring::explore_and_print<Machine>(s, kMaxStates);
                                           }};
  };
  for (const Scenario& s : scenarios()) all.scenarios.push_back(explorable(s));
  all.random = [explorable](unsigned seed) { return explorable(random_scenario(seed)); };
  for (const Mutant m : mutants())
    all.mutants.push_back({.name = name(m), .refute = [m] {
                             return exploring::refute_and_print<Machine>(scenarios_of(m), m, kMaxStates);
                           }});
  return all;
}

}  // namespace multigrain::hlrc::explored
