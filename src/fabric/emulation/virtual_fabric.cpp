#include "fabric/emulation/virtual_fabric.h"

#include <algorithm>

#include "profile/virtual_time.h"

namespace multigrain {
namespace {

Nanoseconds reserve(VirtualFabric::NodeState::Resource& resource, Nanoseconds from, Nanoseconds length) {
  if (length == 0) return from;
  const LockGuard hold(resource.lock);
  return resource.calendar.reserve(from, length);
}

}  // namespace

VirtualFabric::VirtualFabric(std::unique_ptr<Fabric> inner, const NetworkModel& model, std::span<NodeState> nodes)
    : ForwardingFabric(std::move(inner)), model_(model), nodes_(nodes) {
  MG_CHECK(nodes_.size() >= this->nodes());
}

Nanoseconds VirtualFabric::carry(NodeId from, NodeId to, Nanoseconds now, uint64_t bytes) {
  const Nanoseconds transferred = model_.transfer_ns(bytes);
  const Nanoseconds busy = model_.occupancy_ns + transferred;
  const Nanoseconds left = reserve(nodes_[from.value].out, now, busy) + busy;
  // The first byte arrives while the last is being sent.
  return reserve(nodes_[to.value].in, left - transferred + model_.latency_ns, transferred) + transferred;
}

Nanoseconds VirtualFabric::ask(NodeId of, Nanoseconds now, uint64_t bytes) {
  if (of == self()) return now;
  return carry(of, self(), carry(self(), of, now, 0), bytes);
}

// The copy that stands for the transfer takes this processor's time on this machine, and the time of the model on the
// emulated one. The longer of the two counts.
void VirtualFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  wait(start_put(to, segment, offset, bytes));
}

void VirtualFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  wait(start_get(from, segment, offset, bytes));
}

Completion VirtualFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  const Nanoseconds now = virtual_time::stamp();
  inner().put(to, segment, offset, bytes);
  return {to == self() ? 0 : carry(self(), to, now, bytes.size()) + model_.latency_ns};
}

Completion VirtualFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  const Nanoseconds now = virtual_time::stamp();
  inner().get(from, segment, offset, bytes);
  return {from == self() ? 0 : ask(from, now, bytes.size())};
}

Completion VirtualFabric::start_put_pieces(NodeId to, SegmentId segment, uint64_t offset,
                                           std::span<const Piece> pieces) {
  const Nanoseconds now = virtual_time::stamp();
  inner().wait(inner().start_put_pieces(to, segment, offset, pieces));
  return {to == self() ? 0 : carry(self(), to, now, bytes_on_network(pieces)) + model_.latency_ns};
}

Completion VirtualFabric::start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                              uint64_t& old) {
  const Nanoseconds now = virtual_time::stamp();
  old = inner().fetch_and_set(at, segment, offset, value);
  return {at == self() ? 0 : ask(at, now, sizeof old)};
}

Completion VirtualFabric::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend,
                                          uint64_t& old) {
  const Nanoseconds now = virtual_time::stamp();
  old = inner().fetch_add(at, segment, offset, addend);
  return {at == self() ? 0 : ask(at, now, sizeof old)};
}

// The earlier operation has been carried out, though the caller may not know its result yet. So both operations are
// under way at once.
Completion VirtualFabric::start_get_after(Completion, NodeId from, SegmentId segment, uint64_t offset,
                                          std::span<std::byte> bytes) {
  return start_get(from, segment, offset, bytes);
}

bool VirtualFabric::is_complete(Completion completion) {
  return completion.id <= virtual_time::stamp();
}

void VirtualFabric::wait(Completion completion) {
  if (completion.id != 0) virtual_time::advance(completion.id);
}

uint64_t VirtualFabric::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  const Nanoseconds now = virtual_time::stamp();
  const uint64_t old = inner().fetch_and_set(at, segment, offset, value);
  virtual_time::advance(ask(at, now, sizeof old));
  return old;
}

uint64_t VirtualFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  const Nanoseconds now = virtual_time::stamp();
  const uint64_t old = inner().fetch_add(at, segment, offset, addend);
  virtual_time::advance(ask(at, now, sizeof old));
  return old;
}

uint64_t VirtualFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                         uint64_t desired) {
  const Nanoseconds now = virtual_time::stamp();
  const uint64_t old = inner().compare_and_swap(at, segment, offset, expected, desired);
  virtual_time::advance(ask(at, now, sizeof old));
  return old;
}

void VirtualFabric::stamp(NodeId at, SegmentId segment, uint64_t offset) {
  inner().fetch_and_set(at, segment, offset, virtual_time::stamp());
}

void VirtualFabric::go_on_after(NodeId at, SegmentId segment, uint64_t offset) {
  virtual_time::advance(inner().fetch_add(at, segment, offset, 0));
}

// --- Messages

void VirtualFabric::set_handler(MessageType type, MessageHandler handler, void* context) {
  handlers_[type] = {this, handler, context};
  inner().set_handler(type, &VirtualFabric::handle, &handlers_[type]);
}

void VirtualFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                         SendContext context, Nanoseconds not_before) {
  const Nanoseconds arrival = carry(self(), to, virtual_time::stamp(), payload.size() + slice.length);
  // The arrival is at least 1, because 0 would mean that the message has none.
  inner().send(to, header, payload, slice, context, std::max({arrival, not_before, Nanoseconds{1}}));
}

void VirtualFabric::handle(void* handler, const Message& message) {
  const Handler& own = *static_cast<Handler*>(handler);
  const VirtualFabric& fabric = *own.fabric;
  NodeState::Resource& resource = fabric.nodes_[fabric.self().value].handler;
  const virtual_time::Interrupted interrupted = virtual_time::choose_interrupted();
  const Nanoseconds overhead = interrupted.waits ? 0 : fabric.model_.handler_ns;
  Nanoseconds begin;
  {
    const LockGuard hold(resource.lock);
    begin = resource.calendar.gap(message.arrival, overhead + 1);
  }
  Nanoseconds cost;
  {
    virtual_time::HandlerScope scope(begin, overhead);
    own.function(own.context, message);
    cost = scope.elapsed();
  }
  {
    const LockGuard hold(resource.lock);
    resource.calendar.occupy(begin, cost);
  }
  virtual_time::charge(interrupted, cost);
}

}  // namespace multigrain
