// The small machines that are explored: which nodes, which programs, and why.
#pragma once

#include <vector>

#include "mgs_model.h"

namespace multigrain::mgs::model {

// Each one is prepared, with a name that says what it is about. `options` variants come from variants().
std::vector<Scenario> small_scenarios();

// Larger ones, for a run that may take minutes.
std::vector<Scenario> large_scenarios();

// `scenario` under each way of running it that makes sense for its number of domains: pages carried in messages or
// fetched by reference, mappings removed at once or later, faults and releases in one step or in two.
std::vector<Scenario> variants(const Scenario& scenario);

// The scenario of that name; throws std::invalid_argument if there is none.
Scenario scenario_named(const std::string& name);

// The mutants that one machine refutes, and that machine, with the mutant in it.
std::vector<Mutant> mutants();
Scenario scenario_that_refutes(Mutant mutant);

}  // namespace multigrain::mgs::model
