// A run on this machine, from its start to the end of its last process.
//
// Each node is a process, and a child of the caller. Node 0 is the program: it gets the standard input, and its end is
// the run's end. The launcher creates the memory that the nodes share (nothing in it has a name), starts the nodes,
// forwards signals, and sees to it that no node outlives the run:
//
//  - When node 0 exits, the other nodes see that and exit; those that have not after kEndingGrace are killed.
//  - When another node dies, or exits before node 0 has, the launcher sets the abort word in the job memory and writes
//    a message that names the node; the remaining nodes get SIGTERM, and SIGKILL after kTerminationGrace.
//  - When the launcher itself dies, even by SIGKILL, the kernel kills the nodes (PR_SET_PDEATHSIG).
//
// The launcher adopts the processes that nodes have started and left behind, and kills them at the end.
#pragma once

#include <chrono>

#include "launch/command_line.h"

namespace multigrain {

inline constexpr std::chrono::milliseconds kEndingGrace{2000};
inline constexpr std::chrono::milliseconds kTerminationGrace{1000};

// Runs the program and returns the exit status for mgrun: the program's own; 128 + the signal if a signal killed node
// 0; 1 if another node failed; 2 if the program cannot be run. Messages go to standard error. The calling process must
// have no other thread and no children.
int launch(const LaunchOptions& options);

}  // namespace multigrain
