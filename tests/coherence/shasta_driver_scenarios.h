// The machines on which Shasta's driver is explored.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "shasta_driver_world.h"

namespace multigrain::shasta::explored {

// A step is an access of what threads share.
[[nodiscard]] std::vector<Scenario> scenarios();
// Minutes.
[[nodiscard]] std::vector<Scenario> long_scenarios();

// A step is a transition (Scenario::whole_transitions): larger machines; those of minutes only if `with_long`.
[[nodiscard]] std::vector<Scenario> transition_scenarios(bool with_long);
// Programs whose outcomes, of all placements together, are exactly those that the memory model allows.
[[nodiscard]] std::vector<Scenario> litmus(bool with_long);
// Every placement of the homes, with no copies elsewhere at first and with copies everywhere.
[[nodiscard]] std::vector<Scenario> placements(const Scenario& of);

// What is wrong with the outcomes of all placements of such a program; empty: nothing. Prints a line.
[[nodiscard]] std::string check_litmus(const Scenario& program);
// Of one of the two lists that have some of minutes.
[[nodiscard]] std::vector<Scenario> only_long(std::vector<Scenario> (*list)(bool with_long));

// The one of these, without the long ones, that has this name, with a fault.
[[nodiscard]] Scenario scenario_for(const std::string& name, Fault fault = Fault::kNone);
// Short random programs of everything that there is; the same for the same seed. Too large for every order: to be sampled.
[[nodiscard]] Scenario random_scenario(unsigned seed);
[[nodiscard]] bool has_batch(const Scenario& scenario);
// What the memory model allows; of a batch, more: that its accesses are made one by one.
[[nodiscard]] std::set<programs::Outcome> allowed_outcomes(const Scenario& scenario);

}  // namespace multigrain::shasta::explored
