// Tells the user what the processors of a run wait for, and ends the run if it was asked to do that.
#pragma once

#include <span>

#include "launch/supervisor.h"
#include "report/node_snapshot.h"

namespace multigrain {

// `slept`: for how long every processor has been asleep; 0: the user asked. In the first case nothing is said of sleepers
// whom a thread of the program may still wake.
void tell_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds slept, bool ends, Supervisor& supervisor);

}  // namespace multigrain
