// A run on several hosts, from its start to the end of its last process anywhere.
//
// mgrun starts an agent on each host (`ssh HOST mgrun --agent`; without ssh where the host is this machine). When all
// agents are ready, mgrun tells them to start their nodes. Cards of the wire-up, output, input and signals go through
// mgrun, and it keeps the run's rules (launcher.h). These rules are added to them:
//
//  - If a host cannot be reached, has no such program, or refuses for another reason, mgrun writes one sentence with
//    the host's name, and starts nothing.
//  - If a host goes away (its connection breaks, or it is silent for as long as the run's time-out), a message names it
//    and its nodes, and the run ends everywhere else. The host's own agent, if there still is one, finds mgrun silent
//    or gone, and ends its nodes.
//  - If mgrun goes away, even by SIGKILL, the agents find that out and end their nodes.
#pragma once

#include "launch/command_line.h"

namespace multigrain {

// Does what launch() does, for options that name hosts.
int launch_on_hosts(const LaunchOptions& options);

}  // namespace multigrain
