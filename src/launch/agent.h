// mgrun --agent: the process that mgrun starts on each host of a run, and that starts the nodes there.
#pragma once

namespace multigrain {

// Serves the mgrun at the other end of the standard input and output (agent_protocol.h) until the run is over or mgrun
// is gone; in either case nothing of the run is left on this host. Returns the exit status of the agent, which does not
// matter to the run.
int run_agent();

}  // namespace multigrain
