// The statuses of the nodes on this machine (status/node_status.h): where they are, and what can be told from them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "report/node_snapshot.h"
#include "status/node_status.h"

namespace multigrain {

class NodeStatuses {
 public:
  explicit NodeStatuses(NodeId first) : first_(first) {}
  NodeStatuses(const NodeStatuses&) = delete;
  NodeStatuses& operator=(const NodeStatuses&) = delete;
  ~NodeStatuses();

  // Makes the next node's, and returns the descriptor for its process, close-on-exec; the caller closes it.
  Result<int> open_next();
  // That node's process.
  void started(pid_t pid) { pids_.push_back(pid); }

  // Why the node's process has ended, as far as it has said so: lines without an end, or nothing.
  [[nodiscard]] std::string last_words(NodeId node) const;
  // Whether the node has left the run because the program had ended.
  [[nodiscard]] bool run_is_over(NodeId node) const;
  [[nodiscard]] Stillness stillness() const;
  [[nodiscard]] std::vector<NodeSnapshot> snapshots() const;

 private:
  // Of one of the nodes here; nullptr if the node is elsewhere, or has not been made yet.
  [[nodiscard]] const NodeStatus* status_of(NodeId node) const;

  const NodeId first_;
  std::vector<const NodeStatus*> statuses_;
  std::vector<pid_t> pids_;
};

}  // namespace multigrain
