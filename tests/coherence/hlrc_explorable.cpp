#include "hlrc_explorable.h"

#include "hlrc_scenarios.h"

namespace multigrain::hlrc::model {

exploring::Explorable explorable() {
  exploring::Explorable all{.protocol = "hlrc", .scenarios = {}, .mutants = {}, .random = {}};
  for (const Scenario& s : scenarios())
    all.scenarios.push_back({.name = s.name, .takes_minutes = false, .explore = [s] {
                               return exploring::explore_and_print<Machine>(s, kMaxStates);
                             }});
  for (const Mutant m : mutants())
    all.mutants.push_back(
        {.name = name(m), .refute = [m] { return exploring::refute_and_print<Machine>(scenarios(), m, kMaxStates); }});
  return all;
}

}  // namespace multigrain::hlrc::model
