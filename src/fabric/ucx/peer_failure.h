// Failure detection: finds out which nodes are gone, and tells the run.
//
// Heartbeats form a star: every node sends them to node 0, and node 0 to every node, twice a second; node 0 tells the
// other nodes when one is gone. Every message that arrives counts as a sign of life.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

struct Parts;

// Returns why a peer has failed, for a message to the user. `by_node_0`: node 0 has reported the failure.
const char* text_of(FailureReason reason, bool by_node_0);

class PeerFailures {
 public:
  explicit PeerFailures(Parts& parts) : parts_(parts) {}

  // The service thread calls this again and again. It sends heartbeats, and finds the nodes that are silent.
  void check_heartbeats();
  // Returns when check_heartbeats() has something to do next.
  [[nodiscard]] Nanoseconds next_check() const { return next_check_; }

  // Notes that a peer has failed. The first time, this ends the operations that await the peer.
  void peer_failed(unsigned node, FailureReason reason, bool by_node_0) MG_REQUIRES(inside_ucx);
  // Returns whether a peer has failed and the run has not been told.
  [[nodiscard]] bool to_report() const { return to_report_.load(std::memory_order_relaxed) != 0; }
  // Tells the run. The callback may do anything, even end the process.
  void report() MG_EXCLUDES(inside_ucx);
  // The fabric ends, and reports no more failures.
  void drop_reports() { to_report_.store(0); }

 private:
  Parts& parts_;
  std::atomic<uint64_t> to_report_{0};  // a bit a node
  // Only the service thread uses these.
  Nanoseconds next_check_ = 0;
  Nanoseconds next_heartbeat_ = 0;
};

}  // namespace multigrain::ucx
