// A run on this machine, from its start to the end of its last process.
//
// One process a node, all of them children of the caller. Node 0 is the program: it gets the standard input, and its
// end is the run's end. The launcher creates what the nodes share (nothing that has a name), starts them, forwards
// signals, and sees to it that none outlives the run:
//
//  - Node 0 exits: the others exit when they see that; those that do not within kEndingGrace are killed.
//  - Another node dies, or exits before node 0 has: the abort word in the job memory is set, a message names the
//    node, and the rest gets SIGTERM, then SIGKILL after kTerminationGrace.
//  - The launcher itself dies, even by SIGKILL: the kernel kills the nodes (PR_SET_PDEATHSIG).
//
// What the nodes started and left behind is adopted and killed at the end.
#pragma once

#include <chrono>

#include "launch/command_line.h"

namespace multigrain {

inline constexpr std::chrono::milliseconds kEndingGrace{2000};
inline constexpr std::chrono::milliseconds kTerminationGrace{1000};

// Runs the program and returns the exit status for mgrun: the program's own; 128 + the signal if node 0 was killed by
// one; 1 if another node failed; 2 if the program cannot be run. Messages go to standard error. Must be called from a
// process that has no other thread and no children.
int launch(const LaunchOptions& options);

}  // namespace multigrain
