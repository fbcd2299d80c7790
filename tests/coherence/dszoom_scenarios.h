// The machines on which DSZOOM's driver is explored, with all of its steps and those of compiled checks.
#pragma once

#include <string>
#include <vector>

#include "dszoom_driver_world.h"
#include "explore.h"

namespace multigrain::dszoom::explored {

// The checks of some cache what they have looked at: their names begin with "cached".
[[nodiscard]] std::vector<Scenario> scenarios();
// Minutes.
[[nodiscard]] std::vector<Scenario> long_scenarios();
// Those on which the mutant may show, the small ones first.
[[nodiscard]] std::vector<Scenario> scenarios_for(Mutant mutant);

// Explores those until one refutes the mutant, and prints which. Returns the steps that led there; empty: none does.
std::string refute(Mutant mutant);

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::dszoom::explored
