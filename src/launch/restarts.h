// Runs that begin again when they are lost (mgrun --restart-on-failure), on this machine or on several hosts.
#pragma once

#include <functional>

#include "launch/command_line.h"

namespace multigrain {

// How a run has ended.
struct RunEnd {
  int status = 0;  // for mgrun
  // A node has died as it should not (Supervisor::was_lost()), and nothing of the run is left that another one could meet.
  bool may_begin_again = false;
};

// Runs the program by `run_once`, and again from its last checkpoint when the run is lost, as often as the options say. A
// checkpoint that was in the folder before is of another run. The folder of checkpoints is kept from other runs meanwhile;
// where the nodes are on hosts it is so only if the run may begin again, since this process need not reach the folder otherwise.
// Returns the exit status for mgrun.
int run_and_restart(LaunchOptions options, const std::function<RunEnd(const LaunchOptions&)>& run_once);

}  // namespace multigrain
