// The statuses of the nodes on this machine (status/node_status.h): this maps them, and reads from them why nodes ended
// and what processors wait for.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
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

  // Makes the status of the next node. Returns the descriptor for the node's process, close-on-exec; the caller closes
  // it.
  Result<int> open_next();
  // That node has been started as process `pid`.
  void started(pid_t pid) { pids_.push_back(pid); }

  // Returns why the node's process has ended, as far as the node has recorded it: lines without a final newline, or
  // nothing.
  [[nodiscard]] std::string last_words(NodeId node) const;
  // Returns whether the node has left the run because the program had ended.
  [[nodiscard]] bool run_is_over(NodeId node) const;
  [[nodiscard]] Stillness stillness() const;
  [[nodiscard]] std::vector<NodeSnapshot> snapshots() const;

 private:
  // Returns the status of one of the nodes here; nullptr if the node is elsewhere, or has no status yet.
  [[nodiscard]] const NodeStatus* status_of(NodeId node) const;

  const NodeId first_;
  std::vector<const NodeStatus*> statuses_;
  std::vector<FileDescriptor> kept_;  // of the same; mgtop finds them here (tools/mgtop/jobs.h)
  std::vector<pid_t> pids_;
};

}  // namespace multigrain
