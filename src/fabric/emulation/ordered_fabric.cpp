#include "fabric/emulation/ordered_fabric.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "emulation/ordered_execution.h"
#include "profile/virtual_time.h"

namespace multigrain {
namespace {

// After this time, in nanoseconds, a node which has work that it could not do tries again.
constexpr Nanoseconds kRetry = 1000;

}  // namespace

std::span<OrderedFabric::Pending> OrderedFabric::map_pending(size_t count) {
  static_assert(std::is_trivially_destructible_v<Pending>);
  return {static_cast<Pending*>(MappedObject::operator new(count * sizeof(Pending))), count};
}

std::span<Nanoseconds> OrderedFabric::map_times(size_t count) {
  return {static_cast<Nanoseconds*>(MappedObject::operator new(count * sizeof(Nanoseconds))), count};
}

OrderedFabric::OrderedFabric(std::unique_ptr<Fabric> inner, ShmFabric& shm, const NetworkModel& model,
                             std::span<NodeState> nodes, unsigned processors, unsigned handlers)
    : VirtualFabric(std::move(inner), model, nodes),
      shm_(shm),
      nodes_(nodes),
      pending_(map_pending(processors + 1)),
      free_at_(map_times(handlers)) {
  // No sender needs to wake a thread of this node: the turn wakes it.
  shm_.begin_polling();
  ordered::set_later(this);
}

OrderedFabric::~OrderedFabric() {
  ordered::set_later(nullptr);
  MappedObject::operator delete(pending_.data(), pending_.size_bytes());
  MappedObject::operator delete(free_at_.data(), free_at_.size_bytes());
}

// --- Remote memory operations

OrderedFabric::Pending* OrderedFabric::pending() const {
  const unsigned number = ordered::participant() - virtual_time::handler_of(self().value);
  return number < pending_.size() ? &pending_[number] : nullptr;
}

void OrderedFabric::take_effect(const RemoteOperation& operation, Nanoseconds effect, Nanoseconds complete) {
  if (!virtual_time::takes_turns()) return VirtualFabric::take_effect(operation, effect, complete);
  Pending& own = *pending();
  // An operation does not overtake one that its participant has started before at the same node.
  for (uint32_t i = own.first; i < own.end; ++i)
    if (own.entries[i].operation.node == operation.node) effect = std::max(effect, own.entries[i].effect);
  if (keep(own, {.operation = operation, .effect = effect, .complete = std::max(complete, effect)})) {
    virtual_time::expect_event(effect);
    return;
  }
  virtual_time::let_others_come_to(effect);
  VirtualFabric::take_effect(operation, effect, complete);
}

// Puts the entry behind all that take effect no later. Returns false if there is no room.
bool OrderedFabric::keep(Pending& pending, const Pending::Entry& entry) {
  const size_t pieces = entry.operation.pieces.size();
  if (pending.end - pending.first == kMostPending || pieces > kMostPieces - pending.pieces_used) return false;
  if (pending.end == kMostPending) {
    std::copy(pending.entries.begin() + pending.first, pending.entries.end(), pending.entries.begin());
    pending.end -= pending.first;
    pending.first = 0;
  }
  uint32_t at = pending.end++;
  for (; at != pending.first && pending.entries[at - 1].effect > entry.effect; --at)
    pending.entries[at] = pending.entries[at - 1];
  pending.entries[at] = entry;
  if (pieces == 0) return true;
  const std::span<Piece> copy = std::span(pending.pieces).subspan(pending.pieces_used, pieces);
  std::ranges::copy(entry.operation.pieces, copy.begin());
  pending.entries[at].operation.pieces = copy;
  pending.pieces_used += static_cast<uint32_t>(pieces);
  return true;
}

Nanoseconds OrderedFabric::due() const {
  const Pending* const own = pending();
  return own == nullptr || own->first == own->end ? kNever : own->entries[own->first].effect;
}

void OrderedFabric::happen() {
  Pending& own = *pending();
  const RemoteOperation operation = own.entries[own.first++].operation;
  VirtualFabric::take_effect(operation, 0, 0);
  if (own.first == own.end) own.first = own.end = own.pieces_used = 0;
}

bool OrderedFabric::is_complete(Completion completion) {
  if (!VirtualFabric::is_complete(completion)) return false;
  wait(completion);
  return true;
}

void OrderedFabric::wait(Completion completion) {
  if (completion.id == 0) return;
  // What was started and completes at this time has taken effect by then.
  if (virtual_time::takes_turns() && (completion.id > virtual_time::stamp() || ordered::next_due() <= completion.id))
    virtual_time::let_others_come_to(completion.id);
  VirtualFabric::wait(completion);
}

void OrderedFabric::await_effect(Completion completion) {
  if (!virtual_time::takes_turns()) return;
  const Pending& own = *pending();
  Nanoseconds effect = 0;
  for (uint32_t i = own.first; i < own.end; ++i)
    if (own.entries[i].complete == completion.id) effect = std::max(effect, own.entries[i].effect);
  if (effect != 0) virtual_time::let_others_come_to(effect);
}

// --- Messages

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
  if (!shm_.holds_back()) return;
  // The flag comes first: if a receiver has made room before it could see that, this node's handler finds the room.
  nodes_[self().value].holds_back.store(1, std::memory_order_seq_cst);
  ordered::make_ready(virtual_time::handler_of(self().value), now);
}

void OrderedFabric::fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
  virtual_time::spend(&MachineCosts::receive_byte, bytes.size());
  VirtualFabric::fetch_part(message, from, bytes);
}

Nanoseconds& OrderedFabric::first_free() const {
  return *std::ranges::min_element(free_at_);
}

void OrderedFabric::serve() {
  while (!stop_serving_.exchange(false, std::memory_order_seq_cst)) {
    shm_.flush().for_each([&](NodeId to) { ordered::make_ready(virtual_time::handler_of(to.value), now_); });
    // No receiver makes room between the two: this thread has the turn.
    nodes_[self().value].holds_back.store(shm_.holds_back() ? 1 : 0, std::memory_order_seq_cst);
    const auto first = shm_.first_arrived();
    Nanoseconds due = kNever;
    if (first) due = first->arrival == 0 ? now_ : std::max(first->arrival, first_free());
    if (due <= now_) {
      shm_.handle_one(first->source);
      if (nodes_[first->source].holds_back.load(std::memory_order_seq_cst) != 0)
        ordered::make_ready(virtual_time::handler_of(first->source), now_);
      return;
    }
    if (again_at_ <= now_) break;
    due = std::min(due, again_at_);
    // A message that is sent meanwhile may arrive before.
    now_ = due == kNever ? ordered::wait() : ordered::pass(due);
    // What the thread does before it comes back here is done now.
    virtual_time::advance(now_);
  }
  again_at_ = kNever;
}

void OrderedFabric::serve_again() {
  again_at_ = std::max(now_, first_free()) + kRetry;
}

void OrderedFabric::wake_service() {
  stop_serving_.store(true, std::memory_order_seq_cst);
  ordered::make_ready(virtual_time::handler_of(self().value), virtual_time::stamp());
}

void OrderedFabric::deliver(const Handler& handler, const Message& message) {
  // This handler handles nothing else before it is free, so its work follows without a gap.
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
  first_free() = now_ + cost;
  virtual_time::charge(interrupted, cost);
}

}  // namespace multigrain
