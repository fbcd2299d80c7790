// The runs of this machine that the user may look into: an mgrun keeps a descriptor of each of its nodes' statuses
// (launch/node_statuses.h), which /proc shows to the same user.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "status/node_status.h"

namespace multigrain {

// The run of one mgrun, and the statuses of those of its nodes that are on this machine, in their order. The statuses stay mapped
// until this process ends.
struct Job {
  pid_t pid = 0;  // of mgrun
  std::vector<NodeStatus*> nodes;

  [[nodiscard]] bool has_ended() const;
  // Returns the name of the program, without its folders; before a node has started it is "(starting)".
  [[nodiscard]] std::string program() const;
};

// Returns the run of an mgrun. Errors: there is no such process; it is no mgrun; it belongs to another user; it has no node here.
Result<Job> open_job(pid_t pid);
// Returns the runs of this user.
std::vector<Job> find_jobs();

}  // namespace multigrain
