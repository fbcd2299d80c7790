#include "fabric/emulation/ordered_fabric.h"

#include <algorithm>
#include <bit>

#include "emulation/ordered_execution.h"
#include "profile/virtual_time.h"

namespace multigrain {
namespace {

// After this time, in nanoseconds, a node whose messages have found a ring full tries again.
constexpr Nanoseconds kRetry = 1000;

constexpr Nanoseconds kNever = ~Nanoseconds{0};

}  // namespace

OrderedFabric::OrderedFabric(std::unique_ptr<Fabric> inner, ShmFabric& shm, const NetworkModel& model,
                             std::span<NodeState> nodes)
    : VirtualFabric(std::move(inner), model, nodes), shm_(shm) {
  // No sender needs to wake a thread of this node: the turn wakes it.
  shm_.begin_polling();
}

void OrderedFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                         SendContext, Nanoseconds not_before) {
  // A sender that waited for room in a ring would keep the turn from the node that makes room. So what does not fit is held
  // back (kHandler), and sent by this node's handler.
  if (virtual_time::UnaccountedMessages::on()) {
    shm_.send(to, header, payload, slice, SendContext::kHandler);
    announce(to, virtual_time::stamp(), virtual_time::stamp());
    return;
  }
  const Nanoseconds began = virtual_time::stamp();
  const MachineCosts& costs = virtual_time::costs();
  const Picoseconds price = costs.message_send + costs.send_byte * (payload.size() + slice.length);
  virtual_time::internal::spend(price);
  // A stamp may have a floor, which this price does not raise.
  const Nanoseconds sent = std::max(virtual_time::stamp(), began + price / 1000);
  Nanoseconds& last = last_arrival_[to.value];
  // The arrival is at least 1, because 0 means that the message is not accounted.
  last = std::max({last, carry(self(), to, sent, payload.size() + slice.length), not_before, Nanoseconds{1}});
  shm_.send(to, header, payload, slice, SendContext::kHandler, last);
  announce(to, last, sent);
}

void OrderedFabric::announce(NodeId to, Nanoseconds arrival, Nanoseconds now) {
  ordered::make_ready(virtual_time::handler_of(to.value), arrival);
  if (shm_.holds_back()) ordered::make_ready(virtual_time::handler_of(self().value), now);
}

void OrderedFabric::fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
  virtual_time::spend(&MachineCosts::receive_byte, bytes.size());
  VirtualFabric::fetch_part(message, from, bytes);
}

void OrderedFabric::serve() {
  while (!stop_serving_.exchange(false, std::memory_order_seq_cst)) {
    for (uint64_t flushed = shm_.flush(); flushed != 0; flushed &= flushed - 1)
      ordered::make_ready(virtual_time::handler_of(static_cast<unsigned>(std::countr_zero(flushed))), now_);
    const auto first = shm_.first_arrived();
    Nanoseconds due = kNever;
    if (first) due = first->arrival == 0 ? now_ : std::max(first->arrival, free_at_);
    if (due <= now_) {
      shm_.handle_one(first->source);
      return;
    }
    if (shm_.holds_back()) due = std::min(due, now_ + kRetry);
    // A message that is sent meanwhile may arrive before.
    now_ = due == kNever ? ordered::wait() : ordered::pass(due);
  }
}

void OrderedFabric::wake_service() {
  stop_serving_.store(true, std::memory_order_seq_cst);
  ordered::make_ready(virtual_time::handler_of(self().value), virtual_time::stamp());
}

void OrderedFabric::deliver(const Handler& handler, const Message& message) {
  // Nothing else is handled before free_at_, so the handler's work follows without a gap.
  class Gapless final : public virtual_time::HandlerTime {
   public:
    Nanoseconds take(Nanoseconds from, Nanoseconds length) override { return from + length; }
  } gapless;
  const virtual_time::Interrupted interrupted = virtual_time::choose_interrupted();
  const bool interrupts = interrupted.processor != nullptr && !interrupted.waits;
  // What --net says of handlers comes on top of the machine's price.
  virtual_time::HandlerScope scope(now_, interrupts ? model().handler_ns : 0, gapless);
  if (interrupts) virtual_time::spend(&MachineCosts::interrupt);
  virtual_time::spend(&MachineCosts::message_receive);
  virtual_time::spend(&MachineCosts::receive_byte, message.payload.size());
  handler.function(handler.context, message);
  const Nanoseconds cost = scope.elapsed();
  free_at_ = now_ + cost;
  virtual_time::charge(interrupted, cost);
}

}  // namespace multigrain
