// Tells the user what the processors of a run wait for, and ends the run if the user has asked for that.
#pragma once

#include <span>

#include "launch/supervisor.h"
#include "report/node_snapshot.h"

namespace multigrain {

// `slept` is for how long every processor has been asleep; 0: the user has asked what the processors do. If `slept` is
// not 0, nothing is reported while a thread of the program may still wake one of the sleeping processors.
void tell_waiting(std::span<const NodeSnapshot> nodes, Nanoseconds slept, bool ends, Supervisor& supervisor);

}  // namespace multigrain
