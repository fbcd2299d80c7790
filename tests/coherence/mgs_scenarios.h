// These are the small machines that are explored. Each says which nodes and programs it has, and why.
#pragma once

#include <vector>

#include "mgs_programs.h"

namespace multigrain::mgs::explored {

// Every scenario is prepared, and has a name that says what it is about.
std::vector<Scenario> small_scenarios();

// The same with nodes that read pages by themselves, and machines that are about that.
std::vector<Scenario> one_sided_scenarios();
// Scenarios of nodes whose processors have tables and queues of their own (Scenario::has_tables).
std::vector<Scenario> table_scenarios();

// These are larger, for a run that may take minutes.
std::vector<Scenario> large_scenarios();

// Returns the scenario of that name. Throws std::invalid_argument if there is none.
Scenario scenario_named(const std::string& name);

// Returns the mutants that one machine refutes, and that machine, with the mutant in it.
std::vector<Mutant> mutants();
Scenario scenario_that_refutes(Mutant mutant);

}  // namespace multigrain::mgs::explored
