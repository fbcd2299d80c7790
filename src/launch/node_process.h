// Starting one node: a child process that runs the program with what it needs to take part.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain {

struct NodeStart {
  std::string path;                      // of the program
  std::vector<std::string> arguments;    // argv, the name first
  std::vector<std::string> environment;  // NAME=value
  std::vector<int> inherited;            // descriptors that the node keeps, at the same numbers
  bool alone = false;                    // there is no other node, whose addresses its own must equal
  int input = -1;                        // what becomes its descriptors 0, 1 and 2; -1: as they are here
  int output = -1;
  int error = -1;
  sigset_t signal_mask{};  // what the program finds blocked
};

// Starts the node and returns its pid once the program runs in it (exec has succeeded). The child
//  - dies when the caller dies, however that happens (PR_SET_PDEATHSIG);
//  - has address randomisation off, so that all nodes agree on addresses (alone: if that is permitted);
//  - stays in the caller's process group: Control-C reaches it, and it may read from the terminal.
// Call it from the thread that lives as long as the run, in a process with no other thread.
Result<pid_t> start_node(const NodeStart& start);

}  // namespace multigrain
