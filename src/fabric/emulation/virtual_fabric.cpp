#include "fabric/emulation/virtual_fabric.h"

#include <algorithm>

#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain {
namespace {

// Calls use(calendar), which looks for time from `from` on, and counts what the calendar had forgotten.
template <typename Use>
Nanoseconds use_calendar(VirtualFabric::NodeState::Resource& resource, Nanoseconds from, Use&& use) {
  Nanoseconds found = 0;
  uint64_t forgotten = 0;
  bool remembers = true;
  {
    const LockGuard hold(resource.lock);
    forgotten = resource.calendar.forgotten();
    remembers = resource.calendar.remembers(from);
    found = use(resource.calendar);
    forgotten = resource.calendar.forgotten() - forgotten;
  }
  if (forgotten != 0) count(Counter::kIntervalsForgotten, forgotten);
  if (!remembers) count(Counter::kForgottenTimes);
  return found;
}

Nanoseconds reserve(VirtualFabric::NodeState::Resource& resource, Nanoseconds from, Nanoseconds length) {
  if (length == 0) return from;
  return use_calendar(resource, from, [&](Calendar& calendar) { return calendar.reserve(from, length); });
}

// What a node's handlers take.
class NodeHandlerTime final : public virtual_time::HandlerTime {
 public:
  explicit NodeHandlerTime(VirtualFabric::NodeState::Resource& resource) : resource_(resource) {}
  Nanoseconds take(Nanoseconds from, Nanoseconds length) override {
    return use_calendar(resource_, from, [&](Calendar& calendar) { return calendar.take(from, length); });
  }

 private:
  VirtualFabric::NodeState::Resource& resource_;
};

// Carries out an operation on the memory of node `at`. The copy here stands for what the network does on the emulated
// machine, whose model says how long that takes, so it is time of no processor. On its own memory a processor works
// itself.
template <typename Operation>
decltype(auto) on_memory_of(NodeId at, NodeId self, Operation&& operation) {
  if (at == self) return operation();
  const virtual_time::Unaccounted network;
  return operation();
}

// The calling processor starts an operation on the memory of node `at`. Returns when it has done so.
Nanoseconds issue(NodeId at, NodeId self) {
  if (at != self) virtual_time::spend(&MachineCosts::remote_issue);
  return virtual_time::stamp();
}

// What the other node's interface adds to an answer, in nanoseconds: only a description of a machine knows that.
Nanoseconds answer_of_get(uint64_t bytes) {
  if (!virtual_time::is_counted()) return 0;
  const MachineCosts& costs = virtual_time::costs();
  return (costs.get_answer + costs.get_answer_byte * bytes) / 1000;
}
Nanoseconds answer_of_atomic() {
  return virtual_time::is_counted() ? virtual_time::costs().atomic_answer / 1000 : 0;
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

Nanoseconds VirtualFabric::ask(NodeId of, Nanoseconds now, uint64_t bytes, Nanoseconds answer) {
  if (of == self()) return now;
  return carry(of, self(), carry(self(), of, now, 0), bytes) + answer;
}

void VirtualFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  wait(start_put(to, segment, offset, bytes));
}

void VirtualFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  wait(start_get(from, segment, offset, bytes));
}

Completion VirtualFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  const Nanoseconds now = issue(to, self());
  on_memory_of(to, self(), [&] { inner().put(to, segment, offset, bytes); });
  return {to == self() ? 0 : carry(self(), to, now, bytes.size()) + model_.latency_ns};
}

Completion VirtualFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  const Nanoseconds now = issue(from, self());
  on_memory_of(from, self(), [&] { inner().get(from, segment, offset, bytes); });
  return {from == self() ? 0 : ask(from, now, bytes.size(), answer_of_get(bytes.size()))};
}

Completion VirtualFabric::start_put_pieces(NodeId to, SegmentId segment, uint64_t offset,
                                           std::span<const Piece> pieces) {
  const Nanoseconds now = issue(to, self());
  on_memory_of(to, self(), [&] { inner().wait(inner().start_put_pieces(to, segment, offset, pieces)); });
  return {to == self() ? 0 : carry(self(), to, now, bytes_on_network(pieces)) + model_.latency_ns};
}

Completion VirtualFabric::start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                              uint64_t& old) {
  const Nanoseconds now = issue(at, self());
  old = on_memory_of(at, self(), [&] { return inner().fetch_and_set(at, segment, offset, value); });
  return {at == self() ? 0 : ask(at, now, sizeof old, answer_of_atomic())};
}

Completion VirtualFabric::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend,
                                          uint64_t& old) {
  const Nanoseconds now = issue(at, self());
  old = on_memory_of(at, self(), [&] { return inner().fetch_add(at, segment, offset, addend); });
  return {at == self() ? 0 : ask(at, now, sizeof old, answer_of_atomic())};
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
  const Nanoseconds now = issue(at, self());
  const uint64_t old = on_memory_of(at, self(), [&] { return inner().fetch_and_set(at, segment, offset, value); });
  virtual_time::advance(ask(at, now, sizeof old, answer_of_atomic()));
  return old;
}

uint64_t VirtualFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  const Nanoseconds now = issue(at, self());
  const uint64_t old = on_memory_of(at, self(), [&] { return inner().fetch_add(at, segment, offset, addend); });
  virtual_time::advance(ask(at, now, sizeof old, answer_of_atomic()));
  return old;
}

uint64_t VirtualFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                         uint64_t desired) {
  const Nanoseconds now = issue(at, self());
  const uint64_t old =
      on_memory_of(at, self(), [&] { return inner().compare_and_swap(at, segment, offset, expected, desired); });
  virtual_time::advance(ask(at, now, sizeof old, answer_of_atomic()));
  return old;
}

void VirtualFabric::stamp(NodeId at, SegmentId segment, uint64_t offset) {
  const virtual_time::Unaccounted emulation;
  inner().fetch_and_set(at, segment, offset, virtual_time::stamp());
}

void VirtualFabric::go_on_after(NodeId at, SegmentId segment, uint64_t offset) {
  Nanoseconds when = 0;
  {
    const virtual_time::Unaccounted emulation;
    when = inner().fetch_add(at, segment, offset, 0);
  }
  virtual_time::advance(when);
}

// --- Messages

void VirtualFabric::set_handler(MessageType type, MessageHandler handler, void* context) {
  handlers_[type] = {this, handler, context};
  inner().set_handler(type, &VirtualFabric::handle, &handlers_[type]);
}

void VirtualFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                         SendContext context, Nanoseconds not_before) {
  if (virtual_time::UnaccountedMessages::on()) {
    inner().send(to, header, payload, slice, context);
    return;
  }
  const Nanoseconds arrival = carry(self(), to, virtual_time::stamp(), payload.size() + slice.length);
  // The arrival is at least 1, because 0 means that the message is not accounted.
  inner().send(to, header, payload, slice, context, std::max({arrival, not_before, Nanoseconds{1}}));
}

void VirtualFabric::fetch_part(const Message& message, uint32_t from, std::span<std::byte> bytes) {
  on_memory_of(message.from, self(), [&] { inner().fetch_part(message, from, bytes); });
}

void VirtualFabric::handle(void* handler, const Message& message) {
  const Handler& own = *static_cast<Handler*>(handler);
  if (message.arrival == 0) {
    const virtual_time::UnaccountedHandler scope;
    own.function(own.context, message);
    return;
  }
  own.fabric->deliver(own, message);
}

void VirtualFabric::deliver(const Handler& own, const Message& message) {
  NodeHandlerTime time(nodes_[self().value].handler);
  const virtual_time::Interrupted interrupted = virtual_time::choose_interrupted();
  Nanoseconds cost = 0;
  {
    virtual_time::HandlerScope scope(message.arrival, interrupted.waits ? 0 : model_.handler_ns, time);
    own.function(own.context, message);
    cost = scope.elapsed();
  }
  virtual_time::charge(interrupted, cost);
}

}  // namespace multigrain
