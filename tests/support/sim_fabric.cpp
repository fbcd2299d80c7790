#include "support/sim_fabric.h"

#include <cstring>
#include <utility>

#include "base/node_set.h"

namespace multigrain {
namespace {

constexpr size_t kSegments = static_cast<size_t>(SegmentId::kCount);

}  // namespace

// --- SimFabric

unsigned SimFabric::nodes() const {
  return network_.nodes();
}

void SimFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  network_.before({SimNetwork::Operation::Kind::kPut, self_, to, segment, offset, bytes.size()});
  const std::span<std::byte> target = network_.checked(to, segment, offset, bytes.size());
  if (!bytes.empty()) std::memcpy(target.data(), bytes.data(), bytes.size());
}

void SimFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  network_.before({SimNetwork::Operation::Kind::kGet, self_, from, segment, offset, bytes.size()});
  const std::span<std::byte> source = network_.checked(from, segment, offset, bytes.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), source.data(), bytes.size());
}

Completion SimFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  put(to, segment, offset, bytes);
  return {};
}

Completion SimFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  get(from, segment, offset, bytes);
  return {};
}

bool SimFabric::is_complete(Completion completion) {
  MG_CHECK(completion.id == 0, completion.id);
  return true;
}

void SimFabric::wait(Completion completion) {
  MG_CHECK(completion.id == 0, completion.id);
}

uint64_t& SimFabric::word(NodeId at, SegmentId segment, uint64_t offset) {
  if (offset % sizeof(uint64_t) != 0)
    panic("a remote atomic is not on a multiple of 8 bytes (node, offset):", at.value, offset);
  return *reinterpret_cast<uint64_t*>(network_.checked(at, segment, offset, sizeof(uint64_t)).data());
}

std::span<std::byte> SimFabric::own_segment(SegmentId segment) {
  return network_.segment(self_, segment);
}

uint64_t SimFabric::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  network_.before({SimNetwork::Operation::Kind::kFetchAndSet, self_, at, segment, offset, sizeof(uint64_t)});
  return std::exchange(word(at, segment, offset), value);
}

uint64_t SimFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  network_.before({SimNetwork::Operation::Kind::kFetchAdd, self_, at, segment, offset, sizeof(uint64_t)});
  uint64_t& target = word(at, segment, offset);
  return std::exchange(target, target + addend);
}

uint64_t SimFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                     uint64_t desired) {
  network_.before({SimNetwork::Operation::Kind::kCompareAndSwap, self_, at, segment, offset, sizeof(uint64_t)});
  uint64_t& target = word(at, segment, offset);
  const uint64_t old = target;
  if (old == expected) target = desired;
  return old;
}

void SimFabric::set_handler(MessageType type, MessageHandler handler, void* context) {
  MG_CHECK(handler != nullptr, type);
  MG_CHECK(handlers_[type].function == nullptr, type);
  handlers_[type] = {handler, context};
}

void SimFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                     SendContext context, Nanoseconds not_before) {
  MG_CHECK(to.value < nodes() && to != self_, to.value);
  MG_CHECK(payload.size() <= kMaxPayload, payload.size());
  MG_CHECK(context == SendContext::kHandler || !handling_);
  if (slice.length != 0) network_.checked(self_, slice.segment, slice.offset, slice.length);
  network_.link(self_, to).push_back(
      {self_, to, header, std::vector<std::byte>(payload.begin(), payload.end()), slice, not_before});
  ++network_.pending_count_;
}

unsigned SimFabric::poll() {
  MG_CHECK(!handling_);
  if (network_.options_.poll == SimNetwork::PollMode::kManual) return 0;
  return network_.random_step() ? 1 : 0;
}

void SimFabric::end_polling() {
  MG_CHECK(pollers_ != 0);
  --pollers_;
}

// --- SimNetwork

SimNetwork::SimNetwork(const Options& options) : options_(options), random_(options.seed) {
  MG_CHECK(options.nodes >= 1 && options.nodes <= NodeSet::kCapacity, options.nodes);
  links_.resize(size_t{options.nodes} * options.nodes);
  for (uint16_t node = 0; node < options.nodes; ++node) {
    fabrics_.push_back(std::unique_ptr<SimFabric>(new SimFabric(*this, NodeId(node))));
    for (const size_t bytes : {options.frames_bytes, options.words_bytes, options.lines_bytes, options.pages_bytes}) {
      std::vector<uint64_t>& memory = memory_.emplace_back((bytes + 7) / 8);
      segments_.push_back(std::as_writable_bytes(std::span(memory)).first(bytes));
    }
  }
}

SimNetwork::~SimNetwork() = default;

std::span<std::byte> SimNetwork::segment(NodeId node, SegmentId segment) {
  return segments_.at(node.value * kSegments + static_cast<size_t>(segment));
}

void SimNetwork::export_segment(NodeId node, SegmentId segment, std::span<std::byte> memory) {
  MG_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % sizeof(uint64_t) == 0);
  segments_.at(node.value * kSegments + static_cast<size_t>(segment)) = memory;
}

std::span<std::byte> SimNetwork::checked(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) {
  if (node.value >= nodes()) panic("a remote operation names a node that does not exist:", node.value);
  if (segment >= SegmentId::kCount)
    panic("a remote operation names a segment that does not exist:", static_cast<uint64_t>(segment));
  const std::span<std::byte> memory = segments_[node.value * kSegments + static_cast<size_t>(segment)];
  if (length > memory.size() || offset > memory.size() - length)
    panic("a remote operation is outside of what the node exports (node, offset, length):", node.value, offset, length);
  return memory.subspan(offset, length);
}

void SimNetwork::before(const Operation& operation) {
  if (hook_ && operation.by != operation.at) hook_(operation);
}

std::vector<const SimNetwork::Pending*> SimNetwork::pending() const {
  std::vector<const Pending*> all;
  for (const std::deque<Pending>& messages : links_) {
    for (const Pending& message : messages) all.push_back(&message);
  }
  return all;
}

std::vector<const SimNetwork::Pending*> SimNetwork::deliverable() const {
  std::vector<const Pending*> first;
  for (const std::deque<Pending>& messages : links_) {
    if (!messages.empty() && !fabrics_[messages.front().to.value]->handling_) first.push_back(&messages.front());
  }
  return first;
}

bool SimNetwork::deliver(NodeId from, NodeId to) {
  MG_CHECK(from.value < nodes() && to.value < nodes(), from.value, to.value);
  std::deque<Pending>& messages = link(from, to);
  SimFabric& receiver = node(to);
  if (messages.empty() || receiver.handling_) return false;
  const Pending message = std::move(messages.front());
  messages.pop_front();
  --pending_count_;
  const SimFabric::Handler handler = receiver.handlers_[message.header.type];
  if (handler.function == nullptr)
    panic("a message of a type that nobody handles came from node (and its type)", from.value, message.header.type);
  receiver.handling_ = true;
  handler.function(handler.context, Message{from, message.header, message.payload, message.slice, message.not_before});
  receiver.handling_ = false;
  return true;
}

bool SimNetwork::random_step() {
  const std::vector<const Pending*> choices = deliverable();
  if (choices.empty()) return false;
  // std::uniform_int_distribution is not used, because its results differ between libraries, and a seed must mean one
  // run.
  const Pending& chosen = *choices[random_() % choices.size()];
  return deliver(chosen.from, chosen.to);
}

uint64_t SimNetwork::run(uint64_t limit) {
  uint64_t steps = 0;
  while (random_step()) {
    if (++steps > limit) panic("the simulated network does not come to rest; steps:", steps);
  }
  return steps;
}

}  // namespace multigrain
