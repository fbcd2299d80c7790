// The state that a node keeps for each other node. Each structure belongs to one mechanism, and only that mechanism's
// files change it.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "fabric/ucx/credits.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

struct CoalescingBuffer;  // coalescing.h
struct Incoming;          // receiver.h
struct Outgoing;          // sender.h

// endpoints.h
struct Connection {
  ucp_ep_h endpoint MG_GUARDED_BY(inside_ucx) = nullptr;
  bool hello_received MG_GUARDED_BY(inside_ucx) = false;
  bool hello_answered MG_GUARDED_BY(inside_ucx) = false;
  bool welcome_received MG_GUARDED_BY(inside_ucx) = false;
  bool ready_received MG_GUARDED_BY(inside_ucx) = false;
  // These are constant once the node is connected.
  uint64_t key = 0;      // this node must send it to the peer
  bool can_put = false;  // the network does puts without the peer's help
};

// sender.h
struct SendQueue {
  uint64_t next_sequence = 0;
  Outgoing* first = nullptr;  // messages that wait for credits
  Outgoing* last = nullptr;
};

// receiver.h
struct Reordering {
  uint64_t expected = 0;      // the sequence number that the queue takes next
  Incoming* early = nullptr;  // messages with higher numbers, in their order
};

// peer_failure.h. Only a thread inside UCX writes these; every thread reads `failed`.
struct Liveness {
  bool heard MG_GUARDED_BY(inside_ucx) = false;            // a message came since the last check
  bool heartbeat_heard MG_GUARDED_BY(inside_ucx) = false;  // at least one heartbeat has come
  Nanoseconds last_heard MG_GUARDED_BY(inside_ucx) = 0;
  std::atomic<bool> failed{false};
  FailureReason reason = FailureReason::kBroken;
  bool reported_by_node_0 = false;
};

// dispatcher.h: messages that have arrived, in order. The holder of the token runs their handlers.
struct DispatchQueue {
  SpinLock lock;
  Incoming* first MG_GUARDED_BY(lock) = nullptr;
  Incoming* last MG_GUARDED_BY(lock) = nullptr;
  std::atomic<uint32_t> token{0};
  std::atomic<Nanoseconds> due{0};  // when the first message is due; 0: at once
};

// segments.h: the peer's memory.
struct RemoteSegments {
  std::array<uint64_t, static_cast<size_t>(SegmentId::kCount)> base{};
  ucp_rkey_h words_key = nullptr;
  std::atomic<ucp_rkey_h>* chunk_keys = nullptr;  // by chunk; null: not requested yet
};

struct alignas(64) Peer {
  Connection connection;
  SendQueue sending MG_GUARDED_BY(inside_ucx);
  SendCredits send_credits MG_GUARDED_BY(inside_ucx);
  CoalescingBuffer* coalescing MG_GUARDED_BY(inside_ucx) = nullptr;
  Reordering reordering MG_GUARDED_BY(inside_ucx);
  uint64_t arrived MG_GUARDED_BY(inside_ucx) = 0;  // cost of all messages that have arrived (credits.h)
  Liveness liveness;
  // These are on other cache lines than the members above, which the thread inside UCX changes meanwhile.
  alignas(64) DispatchQueue queue;
  ReceiveCredits receive_credits;
  RemoteSegments segments;
};

constexpr uint64_t bit(unsigned node) {
  return uint64_t{1} << node;
}

}  // namespace multigrain::ucx
