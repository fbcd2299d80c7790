// The small machines that are explored: which nodes, which programs, and why.
#pragma once

#include <vector>

#include "mgs_programs.h"

namespace multigrain::mgs::explored {

// Each one is prepared, with a name that says what it is about.
std::vector<Scenario> small_scenarios();

// Larger ones, for a run that may take minutes.
std::vector<Scenario> large_scenarios();

// The scenario of that name; throws std::invalid_argument if there is none.
Scenario scenario_named(const std::string& name);

// The mutants that one machine refutes, and that machine, with the mutant in it.
std::vector<Mutant> mutants();
Scenario scenario_that_refutes(Mutant mutant);

}  // namespace multigrain::mgs::explored
