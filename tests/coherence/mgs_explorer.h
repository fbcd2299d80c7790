// Every order of every event of a small machine running MGS (mgs_model.h).
//
// Breadth first, so that a counter-example is as short as possible. A state is remembered by a 128-bit hash: with the
// millions of states that are explored here, the chance that two are taken for one is below 1e-24.
#pragma once

#include <cstddef>
#include <string>

#include "mgs_model.h"

namespace multigrain::mgs::model {

struct Report {
  size_t states = 0;
  size_t transitions = 0;
  size_t ends = 0;      // states in which nothing is enabled
  size_t depth = 0;     // events on the longest of the shortest paths
  std::string failure;  // empty: every check held in every state
  std::string trace;    // how to get there, event by event
};

// Explores `scenario` (prepared). Checks every state, every end (deadlock, rest, final values) and that an end can be
// reached from every state. Stops at the first failure, or with a failure after `max_states`.
// If the engine itself stops the process (MG_CHECK), the events that led there are printed to standard error.
Report explore(const Scenario& scenario, size_t max_states);

// One line for people: name, states, transitions, ends.
std::string summary(const Scenario& scenario, const Report& report);

}  // namespace multigrain::mgs::model
