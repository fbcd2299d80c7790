// What only the launcher tells a node, beyond the user's Config.
#pragma once

#include <vector>

#include "base/config.h"
#include "fabric/wait.h"

namespace multigrain {

struct NodeEnvironment {
  std::vector<int> frames_fds;  // MULTIGRAIN_FRAMES_FDS: every node's frames, comma-separated; empty without mgrun
  std::vector<int> cpus;        // MULTIGRAIN_PIN: the core of each of this node's processors; empty: anywhere
  WaitPolicy wait;              // from MULTIGRAIN_CORES, the cores of this host for the run, or MULTIGRAIN_SPIN
};

// Reads them. `processors_here`: how many of the run's processors are on this host. A malformed value counts as absent
// where that is harmless (placement), as the launcher wrote it.
NodeEnvironment read_node_environment(unsigned processors_here);

}  // namespace multigrain
