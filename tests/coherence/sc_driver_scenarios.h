// Sequentially consistent pages are explored on these machines.
#pragma once

#include <string>
#include <vector>

#include "sc_driver_world.h"

namespace multigrain::sc::explored {

// Every order of these is tried in seconds.
std::vector<Scenario> scenarios();
// Exploring one of these takes minutes.
std::vector<Scenario> long_scenarios();
std::vector<Mutant> mutants();

// Explores every order, and prints how many states there were. Returns what is wrong, with the steps that led there, or
// nothing if every check held.
std::string explore(const Scenario& scenario);
// Explores the machines one after the other until one refutes the mutant, and prints which. Returns the steps that led
// there, or nothing if no machine refutes it.
std::string refute(Mutant mutant);

}  // namespace multigrain::sc::explored
