// Tells the user what the processors of a run wait for, and ends the run if the user has asked for that.
#pragma once

#include <span>

#include "launch/command_line.h"
#include "launch/standstill.h"
#include "launch/supervisor.h"
#include "report/node_snapshot.h"

namespace multigrain {

// `stood` is for how long no processor has got anywhere; 0: the user has asked what the processors do. If it is not 0,
// nothing is reported while a thread of the program may still wake one of the sleeping processors, or a processor
// outside of Multigrain waits in a system call.
void tell_waiting(std::span<const NodeSnapshot> nodes, const Standstill::Stood& stood, const LaunchOptions& options,
                  Supervisor& supervisor);

}  // namespace multigrain
