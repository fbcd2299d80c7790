// Starts one node: a child process that runs the program with everything that the node needs to take part.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain {

struct NodeStart {
  std::string path;                      // path of the program
  std::vector<std::string> arguments;    // argv, the name first
  std::vector<std::string> environment;  // NAME=value
  std::vector<int> inherited;            // descriptors that the node keeps, at the same numbers
  bool any_addresses = false;            // start it even where address randomisation cannot be turned off
  int input = -1;                        // becomes its descriptor 0; -1: the descriptor of this process
  int output = -1;                       // becomes its descriptor 1
  int error = -1;                        // becomes its descriptor 2
  sigset_t signal_mask{};                // signals that the program finds blocked
};

// Starts the node and returns its pid once the program runs in it (exec has succeeded). The child
//  - dies when the caller dies, however that happens (PR_SET_PDEATHSIG);
//  - has address randomisation off, so that all nodes agree on addresses;
//  - stays in the caller's process group: Control-C reaches it, and it may read from the terminal.
// The calling thread lives as long as the run, and is the only thread of its process.
Result<pid_t> start_node(const NodeStart& start);

// Returns whether start_node() can turn address randomisation off, or it is off on this machine.
bool can_fix_addresses();

}  // namespace multigrain
