// The part of a node's surroundings that only the launcher knows and tells it, beyond the user's Config.
#pragma once

#include <vector>

#include "base/config.h"
#include "fabric/wait.h"

namespace multigrain {

struct NodeEnvironment {
  // MULTIGRAIN_FRAMES_FDS: descriptors of every node's frames, comma-separated; empty without mgrun.
  std::vector<int> frames_fds;
  // MULTIGRAIN_PIN: the core of each of this node's processors; empty if they may run anywhere.
  std::vector<int> cpus;
  // From MULTIGRAIN_CORES, the cores of this host for the run, or from MULTIGRAIN_SPIN.
  WaitPolicy wait;
};

// Reads them. `processors_here` is how many of the run's processors are on this host. A malformed value counts as
// absent where that is harmless (placement), because the launcher wrote it.
NodeEnvironment read_node_environment(unsigned processors_here);

}  // namespace multigrain
