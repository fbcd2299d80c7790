// The machines on which the transitions of Shasta are explored by themselves; shared by the test and by the command `explore`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "explore.h"
#include "shasta_model.h"

namespace multigrain::shasta::model {

// Machines in which the invariants are checked; the large ones only if `with_long`.
[[nodiscard]] std::vector<Scenario> scenarios(bool with_long);
// Programs whose outcomes are compared with reference().
[[nodiscard]] std::vector<Scenario> litmus(bool with_long);
// What differs between the outcomes of the protocol and those of the model; empty: nothing. Prints a line.
[[nodiscard]] std::string check_litmus(const Scenario& scenario, size_t max_states);

// A machine with short random programs of everything that there is; the same for the same seed. For the exploration of the
// driver.
[[nodiscard]] Scenario random_scenario(unsigned seed);

[[nodiscard]] std::vector<Mutant> mutants();
// A machine that refutes the mutant, and part of what is said then. With `allowed` set, outcomes are compared too.
[[nodiscard]] std::pair<Scenario, std::string> refuting(Mutant mutant);

[[nodiscard]] exploring::Explorable explorable();

}  // namespace multigrain::shasta::model
