// `explore network_lock` becomes this program.
#include "../coherence/explore.h"
#include "network_lock_world.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  namespace locks = multigrain::network_lock_explored;
  Explorable all{.protocol = "network_lock", .scenarios = {}, .mutants = {}, .random = {}};
  for (const locks::Scenario& s : locks::scenarios())
    all.scenarios.push_back({.name = s.name, .takes_minutes = false, .explore = [s] { return locks::explore(s); }});
  for (const locks::Mutant m : locks::mutants())
    all.mutants.push_back({.name = locks::name(m), .refute = [m] { return locks::refute(m); }});
  return {all};
}
