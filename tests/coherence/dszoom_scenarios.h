// DSZOOM's driver is explored on these machines, with all of its steps and those of compiled checks.
#pragma once

#include <string>
#include <vector>

#include "dszoom_driver_world.h"
#include "explore.h"

namespace multigrain::dszoom::explored {

// The names of machines whose checks cache begin with "cached".
[[nodiscard]] std::vector<Scenario> scenarios();
// Exploring one of these takes minutes.
[[nodiscard]] std::vector<Scenario> long_scenarios();
// Returns the machines on which the mutant may show, the small ones first.
[[nodiscard]] std::vector<Scenario> scenarios_for(Mutant mutant);

// Explores these machines until one refutes the mutant, and prints which. Returns the steps that led there, or nothing
// if no machine refutes it.
std::string refute(Mutant mutant);

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::dszoom::explored
