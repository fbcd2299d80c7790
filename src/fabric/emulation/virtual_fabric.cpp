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

// Carries out an operation on the memory of node `at`, which is time of no processor, unless that is this node.
template <typename Operation>
decltype(auto) on_memory_of(NodeId at, NodeId self, Operation&& operation) {
  if (at == self) return operation();
  const virtual_time::Unaccounted network;
  return operation();
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

// --- Memory

void VirtualFabric::perform(const RemoteOperation& operation) {
  Fabric& fabric = inner();
  switch (operation.kind) {
    case RemoteOperation::Kind::kPut:
      return fabric.put(operation.node, operation.segment, operation.offset, operation.from);
    case RemoteOperation::Kind::kPutPieces:
      return fabric.wait(
          fabric.start_put_pieces(operation.node, operation.segment, operation.offset, operation.pieces));
    case RemoteOperation::Kind::kGet:
      return fabric.get(operation.node, operation.segment, operation.offset, operation.to);
    case RemoteOperation::Kind::kFetchAndSet:
      *operation.old = fabric.fetch_and_set(operation.node, operation.segment, operation.offset, operation.operand);
      return;
    case RemoteOperation::Kind::kFetchAdd:
      *operation.old = fabric.fetch_add(operation.node, operation.segment, operation.offset, operation.operand);
      return;
    case RemoteOperation::Kind::kCompareAndSwap:
      *operation.old = fabric.compare_and_swap(operation.node, operation.segment, operation.offset, operation.expected,
                                               operation.operand);
      return;
  }
}

void VirtualFabric::take_effect(const RemoteOperation& operation, Nanoseconds, Nanoseconds) {
  // The copy here stands for what the network does on the emulated machine, whose model says how long that takes, so it is
  // time of no processor.
  const virtual_time::Unaccounted network;
  perform(operation);
}

// A put takes effect when all of it has arrived, other operations when their requests have.
Completion VirtualFabric::start(const RemoteOperation& operation) {
  const NodeId at = operation.node;
  if (at == self()) {
    // A processor works on its node's memory itself.
    perform(operation);
    return {};
  }
  virtual_time::spend(&MachineCosts::remote_issue);
  const Nanoseconds now = virtual_time::stamp();
  Nanoseconds effect = 0, complete = 0;
  switch (operation.kind) {
    case RemoteOperation::Kind::kPut:
    case RemoteOperation::Kind::kPutPieces: {
      const bool in_pieces = operation.kind == RemoteOperation::Kind::kPutPieces;
      effect = carry(self(), at, now, in_pieces ? bytes_on_network(operation.pieces) : operation.from.size());
      complete = effect + model_.latency_ns;
      break;
    }
    case RemoteOperation::Kind::kGet:
      effect = carry(self(), at, now, 0);
      complete = carry(at, self(), effect, operation.to.size()) + answer_of_get(operation.to.size());
      break;
    case RemoteOperation::Kind::kFetchAndSet:
    case RemoteOperation::Kind::kFetchAdd:
    case RemoteOperation::Kind::kCompareAndSwap:
      effect = carry(self(), at, now, 0);
      complete = carry(at, self(), effect, sizeof operation.operand) + answer_of_atomic();
      break;
  }
  take_effect(operation, effect, complete);
  return {complete};
}

uint64_t VirtualFabric::do_atomic(RemoteOperation operation) {
  uint64_t old = 0;
  operation.old = &old;
  wait(start(operation));
  return old;
}

void VirtualFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  wait(start_put(to, segment, offset, bytes));
}

void VirtualFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  wait(start_get(from, segment, offset, bytes));
}

Completion VirtualFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  return start({.kind = RemoteOperation::Kind::kPut,
                .node = to,
                .segment = segment,
                .offset = offset,
                .from = bytes,
                .pieces = {},
                .to = {}});
}

Completion VirtualFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  return start({.kind = RemoteOperation::Kind::kGet,
                .node = from,
                .segment = segment,
                .offset = offset,
                .from = {},
                .pieces = {},
                .to = bytes});
}

Completion VirtualFabric::start_put_pieces(NodeId to, SegmentId segment, uint64_t offset,
                                           std::span<const Piece> pieces) {
  return start({.kind = RemoteOperation::Kind::kPutPieces,
                .node = to,
                .segment = segment,
                .offset = offset,
                .from = {},
                .pieces = pieces,
                .to = {}});
}

Completion VirtualFabric::start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                              uint64_t& old) {
  return start(atomic(RemoteOperation::Kind::kFetchAndSet, at, segment, offset, value, &old));
}

Completion VirtualFabric::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend,
                                          uint64_t& old) {
  return start(atomic(RemoteOperation::Kind::kFetchAdd, at, segment, offset, addend, &old));
}

// The earlier operation takes effect before this one: at once, or in counted time because it has been started before. So both
// operations are under way at once.
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
  return do_atomic(atomic(RemoteOperation::Kind::kFetchAndSet, at, segment, offset, value, nullptr));
}

uint64_t VirtualFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  return do_atomic(atomic(RemoteOperation::Kind::kFetchAdd, at, segment, offset, addend, nullptr));
}

uint64_t VirtualFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                         uint64_t desired) {
  RemoteOperation operation = atomic(RemoteOperation::Kind::kCompareAndSwap, at, segment, offset, desired, nullptr);
  operation.expected = expected;
  return do_atomic(operation);
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
