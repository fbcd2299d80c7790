#include "fabric/ucx/peer_failure.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "fabric/ucx/parts.h"

namespace multigrain::ucx {
namespace {

constexpr Nanoseconds kFirstHeartbeat = 60 * kSecond;  // a node that starts may be silent for this long

}  // namespace

const char* text_of(FailureReason reason, bool by_node_0) {
  if (reason == FailureReason::kEnded) return "its program has ended";
  if (reason == FailureReason::kSilent)
    return by_node_0 ? "node 0 has not heard from it for too long" : "it has been silent for too long";
  return by_node_0 ? "its connection to node 0 broke" : "its connection broke";
}

void PeerFailures::check_heartbeats() {
  const Nanoseconds silence_limit = parts_.options.silence_limit;
  const WireContext& context = parts_.context;
  if (silence_limit == 0 || context.nodes == 1) {
    next_check_ = Dispatcher::kNever;
    return;
  }
  const Nanoseconds now = monotonic_ns();
  if (now < next_check_) return;
  const bool first = next_heartbeat_ == 0;
  const Nanoseconds period = std::min(kSecond / 2, silence_limit / 8);
  // If this process itself was stopped, that time does not count as a peer's silence.
  const Nanoseconds pause = first ? 0 : now - (next_check_ - period / 2);
  const Nanoseconds own_pause = pause > 3 * period ? pause : 0;
  next_check_ = now + period / 2;
  const bool speaks = now >= next_heartbeat_;
  if (speaks) next_heartbeat_ = now + period;
  const UcxLock lock(parts_);
  for (unsigned n = 0; n < context.nodes; ++n) {
    Liveness& liveness = parts_.peers[n].liveness;
    if (n == context.self || (context.self != 0 && n != 0) || liveness.failed.load(std::memory_order_relaxed)) continue;
    if (speaks) parts_.sender.send_control(n, ControlKind::kAlive);
    liveness.last_heard = std::min(now, liveness.last_heard + own_pause);
    if (first || std::exchange(liveness.heard, false)) liveness.last_heard = now;
    const Nanoseconds limit = liveness.heartbeat_heard ? silence_limit : std::max(silence_limit, kFirstHeartbeat);
    // A pause that is shorter than the limit is borne wherever between two signs of life it begins.
    if (now - liveness.last_heard > limit + period) peer_failed(n, FailureReason::kSilent, false);
  }
}

void PeerFailures::peer_failed(unsigned node, FailureReason reason, bool by_node_0) {
  const WireContext& context = parts_.context;
  Liveness& liveness = parts_.peers[node].liveness;
  if (node == context.self || liveness.failed.load(std::memory_order_relaxed)) return;
  liveness.reason = reason;
  liveness.reported_by_node_0 = by_node_0;
  liveness.failed.store(true, std::memory_order_relaxed);
  to_report_.fetch_or(bit(node), std::memory_order_relaxed);
  parts_.operations.peer_failed(node);
  if (context.self == 0 && parts_.connected) {
    for (unsigned n = 1; n < context.nodes; ++n)
      if (n != node) parts_.sender.send_control(n, ControlKind::kPeerFailed, node, static_cast<uint64_t>(reason));
  }
}

void PeerFailures::report() {
  const UcxOptions& options = parts_.options;
  for (uint64_t rest = to_report_.exchange(0, std::memory_order_relaxed); rest != 0; rest &= rest - 1) {
    const auto node = static_cast<uint16_t>(std::countr_zero(rest));
    const Liveness& liveness = parts_.peers[node].liveness;
    if (parts_.connected && options.peer_failed != nullptr)
      options.peer_failed(options.context, NodeId(node), text_of(liveness.reason, liveness.reported_by_node_0));
  }
}

}  // namespace multigrain::ucx
