// `explore futex` becomes this program.
#include "../coherence/explore.h"
#include "futex_scenarios.h"

std::vector<multigrain::exploring::Explorable> multigrain::exploring::explorables() {
  namespace futex = multigrain::futex_model;
  constexpr size_t kMaxStates = 8'000'000;
  Explorable all{.protocol = "futex", .scenarios = {}, .mutants = {}, .random = {}};
  for (const futex::Scenario& s : futex::scenarios())
    all.scenarios.push_back({.name = s.name, .takes_minutes = false, .explore = [s] {
                               return explore_and_print<futex::Machine>(s, kMaxStates);
                             }});
  for (auto i = static_cast<uint8_t>(futex::Mutant::kNone) + 1; i < static_cast<uint8_t>(futex::Mutant::kCount); ++i) {
    const auto m = static_cast<futex::Mutant>(i);
    all.mutants.push_back({.name = futex::name(m), .refute = [m] {
                             return refute_and_print<futex::Machine>(futex::scenarios(), m, kMaxStates);
                           }});
  }
  return {all};
}
