// Failure detection: which nodes are gone, and telling it to the run.
//
// Heartbeats form a star: every node and node 0 say twice a second that they are there, and node 0 tells the others
// which node is not. Everything that arrives counts as a sign of life.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

struct Parts;

// Why a peer has failed, for a message; `by_node_0`: node 0 has found it.
const char* text_of(FailureReason reason, bool by_node_0);

class PeerFailures {
 public:
  explicit PeerFailures(Parts& parts) : parts_(parts) {}

  // By the service thread, again and again: sends heartbeats, and finds the nodes that are silent.
  void check_heartbeats();
  // When check_heartbeats() has something to do next.
  [[nodiscard]] Nanoseconds next_check() const { return next_check_; }

  // The first failure of a peer ends what waits for it.
  void peer_failed(unsigned node, FailureReason reason, bool by_node_0) MG_REQUIRES(inside_ucx);
  // Whether a peer has failed of which the run has not been told.
  [[nodiscard]] bool to_report() const { return to_report_.load(std::memory_order_relaxed) != 0; }
  // Tells it. The callback may do whatever it likes.
  void report() MG_EXCLUDES(inside_ucx);
  // The fabric ends, and reports no more.
  void drop_reports() { to_report_.store(0); }

 private:
  Parts& parts_;
  std::atomic<uint64_t> to_report_{0};  // a bit a node
  // Of the service thread:
  Nanoseconds next_check_ = 0;
  Nanoseconds next_heartbeat_ = 0;
};

}  // namespace multigrain::ucx
