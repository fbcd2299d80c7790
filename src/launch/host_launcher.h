// A run on several hosts, from its start to the end of its last process anywhere.
//
// mgrun starts an agent on each host (`ssh HOST mgrun --agent`; without ssh where the host is this machine) and tells
// them, when all are ready, to start their nodes; cards of the wire-up, output, input and signals go through it, and it
// keeps the run's rules (launcher.h). What is added to them:
//
//  - A host that cannot be reached, has no such program, or refuses for another reason: one sentence with its name,
//    and nothing is started.
//  - A host that goes away (its connection breaks, or it is silent for as long as the run's time-out): a message names
//    it and its nodes, and the run ends everywhere else. Its own agent, if there still is one, finds mgrun silent or
//    gone, and ends its nodes.
//  - mgrun goes away, even by SIGKILL: the agents find that out and end their nodes.
#pragma once

#include "launch/command_line.h"

namespace multigrain {

// As launch(), for options that name hosts.
int launch_on_hosts(const LaunchOptions& options);

}  // namespace multigrain
