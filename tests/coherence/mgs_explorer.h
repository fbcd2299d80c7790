// Every order of every event of a small machine running MGS (mgs_model.h).
#pragma once

#include <cstddef>
#include <string>

#include "explorer.h"
#include "mgs_model.h"

namespace multigrain::mgs::model {

using exploring::Report;

// Explores `scenario` (prepared). Checks every state, every end (deadlock, rest, final values) and that an end can be
// reached from every state. Stops at the first failure, or with a failure after `max_states`.
// If a transition itself stops the process (MG_CHECK), the events that led there are printed to standard error.
Report explore(const Scenario& scenario, size_t max_states);

// One line for people: name, states, transitions, ends.
std::string summary(const Scenario& scenario, const Report& report);

}  // namespace multigrain::mgs::model
