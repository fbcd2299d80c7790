// Shasta's driver is explored on these machines.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shasta_driver_world.h"

namespace multigrain::shasta::explored {

// In these a step is an access of what threads share.
[[nodiscard]] std::vector<Scenario> scenarios();
// These take minutes.
[[nodiscard]] std::vector<Scenario> long_scenarios();

// In these a step is a transition (Scenario::whole_transitions), so the machines are larger. Those that take minutes
// are there only if `with_long`.
[[nodiscard]] std::vector<Scenario> transition_scenarios(bool with_long);
// Returns programs whose outcomes, of all placements together, are exactly those that the memory model allows.
[[nodiscard]] std::vector<Scenario> litmus(bool with_long);
// Returns the scenario with every placement of the homes, with no copies elsewhere at first and with copies everywhere.
[[nodiscard]] std::vector<Scenario> placements(const Scenario& of);

// Returns what is wrong with the outcomes of all placements of such a program, or nothing. Prints a line.
[[nodiscard]] std::string check_litmus(const Scenario& program);
// Returns the scenarios of minutes of one of the two lists that have some.
[[nodiscard]] std::vector<Scenario> only_long(std::vector<Scenario> (*list)(bool with_long));

// Returns the scenario of this name, which is none of the long ones, with a fault.
[[nodiscard]] Scenario scenario_for(const std::string& name, Fault fault = Fault::kNone);
// Returns a machine with short random programs of everything that there is, the same for the same seed. It is too large
// to be explored in every order, and is sampled.
[[nodiscard]] Scenario random_scenario(unsigned seed);
[[nodiscard]] bool has_batch(const Scenario& scenario);
// Returns what the memory model allows. For a batch it allows more: that its accesses are made one by one.
[[nodiscard]] std::set<programs::Outcome> allowed_outcomes(const Scenario& scenario);

}  // namespace multigrain::shasta::explored
