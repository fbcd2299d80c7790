// The transitions of Shasta: client and directory of one block at one node. Sections in comments are [Shasta].

#include "coherence/shasta/engine.h"

#include <algorithm>

#include "base/error.h"

namespace multigrain::shasta {

const char* name(MessageKind kind) {
  switch (kind) {
    case MessageKind::kRead:
      return "read";
    case MessageKind::kReadExclusive:
      return "read-exclusive";
    case MessageKind::kUpgrade:
      return "upgrade";
    case MessageKind::kStoreConditional:
      return "store-conditional";
    case MessageKind::kForwardRead:
      return "forwarded read";
    case MessageKind::kForwardReadExclusive:
      return "forwarded read-exclusive";
    case MessageKind::kInvalidate:
      return "invalidate";
    case MessageKind::kData:
      return "data";
    case MessageKind::kDataExclusive:
      return "exclusive data";
    case MessageKind::kUpgraded:
      return "upgraded";
    case MessageKind::kConditionalFailed:
      return "conditional failed";
    case MessageKind::kInvalidated:
      return "invalidated";
    case MessageKind::kKindCount:
      break;
  }
  return "?";
}

bool StoreQueue::has_waiting() const {
  for (size_t i = 0; i < size_; ++i)
    if (entries_[i].waits) return true;
  return false;
}

bool StoreQueue::masks(BlockId block) const {
  for (size_t i = 0; i < size_; ++i)
    if (entries_[i].block == block && !entries_[i].waits) return true;
  return false;
}

size_t StoreQueue::find(BlockId block) const {
  size_t i = 0;
  while (i < size_ && entries_[i].block != block) ++i;
  return i;
}

void StoreQueue::push(Entry entry) {
  MG_CHECK(!full());
  entries_[size_++] = entry;
}

void StoreQueue::erase(size_t i) {
  MG_CHECK(i < size_);
  for (; i + 1 < size_; ++i) entries_[i] = entries_[i + 1];
  entries_[--size_] = {};
}

uint64_t FenceEpochs::begin() {
  ++counts_[current_ % kCapacity];
  return current_;
}

void FenceEpochs::end(uint64_t epoch) {
  MG_CHECK(epoch >= oldest_ && epoch <= current_ && counts_[epoch % kCapacity] > 0, epoch);
  --counts_[epoch % kCapacity];
  retire();
}

uint64_t FenceEpochs::fence() {
  // With nothing in the current epoch there may be something in earlier ones, of which others' fences have made ends.
  if (counts_[current_ % kCapacity] == 0) return current_ - 1;
  MG_CHECK(current_ + 1 - oldest_ < kCapacity);
  return current_++;
}

void FenceEpochs::retire() {
  while (oldest_ < current_ && counts_[oldest_ % kCapacity] == 0) ++oldest_;
}

Block initial_block(const Context& context) {
  Block block;
  if (context.is_home()) {
    block.state = State::kExclusive;
    block.owner = context.self;
    block.sharers.insert(context.self);
  }
  return block;
}

namespace {

bool masks_words(const Node& node, BlockId block) {
  return std::any_of(node.processors.begin(), node.processors.end(),
                     [&](const Processor& p) { return p.queue.masks(block); });
}

// The node may store. Under rc acknowledgements may be missing: whoever sees the store has to fence before it tells.
bool is_storable(const Block& block, const Context& context) {
  return block.state == State::kExclusive && (context.model == Model::kRc || block.pending == Pending::kNone);
}

// One transition: the event itself and everything that the home says to itself because of it.
class Transition {
 public:
  Transition(Block& block, const Context& context, Node& node, Actions& actions)
      : b_(block), context_(context), node_(node), actions_(actions) {}

  Outcome load(unsigned p);
  Outcome fetch(unsigned p);
  Outcome store(unsigned p);
  Outcome request_hazard(unsigned p);
  Outcome conditional(unsigned p);
  void prefetch();
  bool message(NodeId from, const BlockMessage& m);
  // Does what can be done now: serves what is forwarded, retires stores, asks for what is wanted.
  void advance();
  // Handles what the home has said to itself.
  void process_self_messages();

 private:
  // --- Directory
  bool serve_request(NodeId from, MessageKind kind);
  [[nodiscard]] NodeId source() const;

  // --- Client
  bool client_message(NodeId from, const BlockMessage& m);
  bool receive_data();
  bool receive_exclusive(const BlockMessage& m);
  bool receive_forward(const BlockMessage& m);
  bool receive_invalidation(NodeId requester);
  void request_exclusive();
  void exclusive_replied();
  void check_complete();
  void retire();
  void deliver_loads();
  void end_fetches();
  void serve_forwarded();
  void supply_readers();
  void supply_successor();
  void invalidate();

  [[nodiscard]] Processor& processor(unsigned p) {
    MG_CHECK(p < node_.processors.size(), p);
    return node_.processors[p];
  }
  [[nodiscard]] bool is_rc() const { return context_.model == Model::kRc; }
  [[nodiscard]] bool is_storable() const { return shasta::is_storable(b_, context_); }
  [[nodiscard]] bool wants_exclusive() const;
  [[nodiscard]] bool masks_words() const { return shasta::masks_words(node_, context_.block); }

  void to(NodeId node, const BlockMessage& m, Verb verb = Verb::kSend);
  void to_home(MessageKind kind) { to(context_.home, {.kind = kind, .requester = context_.self}); }
  void act(Verb verb, unsigned p = 0, unsigned count = 0) {
    actions_.push({.verb = verb,
                   .processor = static_cast<uint8_t>(p),
                   .count = static_cast<uint8_t>(count),
                   .node = {},
                   .block = context_.block,
                   .message = {}});
  }

  static constexpr size_t kSelfCapacity = 8;

  Block& b_;
  const Context& context_;
  Node& node_;
  Actions& actions_;
  std::array<BlockMessage, kSelfCapacity> self_{};
  size_t self_head_ = 0;
  size_t self_tail_ = 0;
};

void Transition::to(NodeId node, const BlockMessage& m, Verb verb) {
  if (node == context_.self) {
    MG_CHECK(self_tail_ < kSelfCapacity && verb == Verb::kSend);
    self_[self_tail_++] = m;
    return;
  }
  actions_.push({.verb = verb, .node = node, .block = context_.block, .message = m});
}

void Transition::process_self_messages() {
  while (self_head_ != self_tail_) {
    const BlockMessage m = self_[self_head_++];
    MG_CHECK(message(context_.self, m), static_cast<uint64_t>(m.kind));
  }
}

bool Transition::message(NodeId from, const BlockMessage& m) {
  if (m.kind <= MessageKind::kStoreConditional) return context_.is_home() && serve_request(from, m.kind);
  return client_message(from, m);
}

// --- Directory. It changes when a request arrives, and never waits for anything (S4). ------------------------------

// Who supplies the data: the home if it has a copy, which saves a hop; else the owner.
NodeId Transition::source() const {
  return b_.sharers.contains(context_.self) && b_.is_readable() ? context_.self : b_.owner;
}

bool Transition::serve_request(NodeId from, MessageKind kind) {
  const bool is_sharer = b_.sharers.contains(from);
  if (kind == MessageKind::kRead) {
    if (is_sharer) return false;
    const NodeId supplier = source();
    b_.sharers.insert(from);
    to(supplier, {.kind = MessageKind::kForwardRead, .requester = from});
    return true;
  }
  if (kind == MessageKind::kReadExclusive && is_sharer) return false;
  if (kind == MessageKind::kStoreConditional && !is_sharer) {
    to(from, {.kind = MessageKind::kConditionalFailed, .requester = from});
    return true;
  }
  NodeSet others = b_.sharers - NodeSet::of(from);
  // An upgrade whose copy was invalidated on its way is a read-exclusive.
  const NodeId supplier = source();
  if (!is_sharer) others.erase(supplier);
  const auto acks = static_cast<uint16_t>(others.size());
  b_.owner = from;
  b_.sharers = NodeSet::of(from);
  if (is_sharer) {
    to(from, {.kind = MessageKind::kUpgraded, .requester = from, .acks = acks});
  } else {
    to(supplier, {.kind = MessageKind::kForwardReadExclusive, .requester = from, .acks = acks});
  }
  others.for_each([&](NodeId n) { to(n, {.kind = MessageKind::kInvalidate, .requester = from}); });
  return true;
}

// --- Processors ------------------------------------------------------------------------------------------------------

Outcome Transition::load(unsigned p) {
  if (b_.is_readable()) return Outcome::kResolved;
  b_.loading.insert(p);
  advance();
  return Outcome::kWait;
}

Outcome Transition::fetch(unsigned p) {
  if (b_.is_readable() && !masks_words()) return Outcome::kResolved;
  b_.fetching.insert(p);
  advance();
  return b_.fetching.contains(p) ? Outcome::kWait : Outcome::kResolved;
}

Outcome Transition::store(unsigned p) {
  Processor& me = processor(p);
  if (me.queue.full()) return Outcome::kWait;
  if (is_storable()) return Outcome::kResolved;
  const bool waits = !is_rc();
  // (S9) What is masked must read as a miss, even to the processor itself, while it runs on.
  if (!waits && b_.is_readable() && !masks_words()) act(Verb::kLowerToInvalid);
  me.queue.push({.block = context_.block, .waits = waits});
  if (!waits) act(Verb::kMask, p);
  advance();
  return Outcome::kQueued;
}

Outcome Transition::request_hazard(unsigned p) {
  Processor& me = processor(p);
  if (me.queue.full()) return Outcome::kWait;
  if (is_storable()) return Outcome::kResolved;
  me.queue.push({.block = context_.block, .waits = true, .requests_hazard = true});
  advance();
  return Outcome::kQueued;
}

// Whoever compared has looked at a copy that nobody of this node can store to before the answer: it is not exclusive.
Outcome Transition::conditional(unsigned p) {
  if (is_storable()) return Outcome::kResolved;
  if (b_.state != State::kShared || b_.pending != Pending::kNone) return Outcome::kFailed;
  b_.pending = Pending::kStoreConditional;
  b_.conditional = static_cast<uint8_t>(p);
  if (is_rc()) b_.epoch = node_.epochs.begin();
  to_home(MessageKind::kStoreConditional);
  return Outcome::kWait;
}

void Transition::prefetch() {
  b_.prefetching = true;
  advance();
}

bool Transition::wants_exclusive() const {
  return b_.prefetching || std::any_of(node_.processors.begin(), node_.processors.end(), [&](const Processor& p) {
           return p.queue.find(context_.block) != p.queue.size();
         });
}

void Transition::request_exclusive() {
  b_.pending = b_.state == State::kShared ? Pending::kUpgrade : Pending::kReadExclusive;
  if (is_rc()) b_.epoch = node_.epochs.begin();
  to_home(b_.state == State::kShared ? MessageKind::kUpgrade : MessageKind::kReadExclusive);
}

void Transition::advance() {
  if (b_.pending != Pending::kNone) return;
  if (b_.state == State::kExclusive) {
    b_.prefetching = false;
    retire();
  }
  if (b_.is_readable()) {
    deliver_loads();
    end_fetches();
  }
  if (b_.state == State::kExclusive) {
    serve_forwarded();
    return;
  }
  if (wants_exclusive()) {
    request_exclusive();
  } else if (!b_.is_readable() && !(b_.loading | b_.fetching).empty()) {
    b_.pending = Pending::kRead;
    to_home(MessageKind::kRead);
  }
}

// --- Client ----------------------------------------------------------------------------------------------------------

bool Transition::client_message(NodeId from, const BlockMessage& m) {
  switch (m.kind) {
    case MessageKind::kForwardRead:
    case MessageKind::kForwardReadExclusive:
      return from == context_.home && m.requester != context_.self && receive_forward(m);
    case MessageKind::kInvalidate:
      return from == context_.home && m.requester != context_.self && receive_invalidation(m.requester);
    case MessageKind::kData:
      return from != context_.self && receive_data();
    case MessageKind::kDataExclusive:
      return from != context_.self && receive_exclusive(m);
    case MessageKind::kUpgraded:
      return from == context_.home && receive_exclusive(m);
    case MessageKind::kConditionalFailed:
      if (from != context_.home || b_.pending != Pending::kStoreConditional || b_.replied) return false;
      b_.pending = Pending::kNone;
      if (is_rc()) node_.epochs.end(b_.epoch);
      act(Verb::kConditionalFailed, b_.conditional);
      act(Verb::kWake);
      advance();
      return true;
    case MessageKind::kInvalidated:
      if (b_.pending == Pending::kNone || b_.pending == Pending::kRead || from == context_.self) return false;
      if (b_.replied && b_.acks <= 0) return false;
      --b_.acks;
      check_complete();
      return true;
    default:
      return false;
  }
}

bool Transition::receive_data() {
  if (b_.pending != Pending::kRead) return false;
  b_.pending = Pending::kNone;
  b_.state = State::kShared;
  act(Verb::kFill);
  deliver_loads();
  end_fetches();
  act(Verb::kWake);
  // Ordered after the read: the loads that waited were made before it.
  if (b_.has_invalidation) invalidate();
  advance();
  return true;
}

bool Transition::receive_exclusive(const BlockMessage& m) {
  const bool has_data = m.kind == MessageKind::kDataExclusive;
  if (b_.replied) return false;
  if (has_data ? b_.state != State::kInvalid : b_.state != State::kShared) return false;
  switch (b_.pending) {
    case Pending::kNone:
    case Pending::kRead:
      return false;
    case Pending::kReadExclusive:
      if (!has_data) return false;
      break;
    case Pending::kUpgrade:
      break;
    case Pending::kStoreConditional:
      if (has_data) return false;
      break;
  }
  if (has_data) act(Verb::kFill);
  b_.state = State::kExclusive;
  b_.replied = true;
  b_.acks = static_cast<int16_t>(b_.acks + m.acks);
  if (b_.acks < 0) return false;
  exclusive_replied();
  return true;
}

void Transition::exclusive_replied() {
  deliver_loads();
  if (is_rc()) {
    b_.prefetching = false;
    if (b_.pending == Pending::kStoreConditional) act(Verb::kConditionalSucceeded, b_.conditional);
    retire();
  }
  end_fetches();
  act(Verb::kWake);
  check_complete();
}

void Transition::check_complete() {
  if (!b_.replied || b_.acks != 0) return;
  if (is_rc()) {
    node_.epochs.end(b_.epoch);
  } else if (b_.pending == Pending::kStoreConditional) {
    act(Verb::kConditionalSucceeded, b_.conditional);
  }
  b_.pending = Pending::kNone;
  b_.replied = false;
  act(Verb::kWake);
  // First what waits here, so that nobody is starved; then what has been ordered after it.
  advance();
}

// Makes the queued stores that may be made now (section 3.2.3), and grants the hazards.
void Transition::retire() {
  if (!is_storable()) return;
  for (unsigned p = 0; p < node_.processors.size(); ++p) {
    StoreQueue& queue = node_.processors[p].queue;
    unsigned count = 0;
    bool requests_hazard = false;
    for (size_t i = queue.find(context_.block); i != queue.size(); i = queue.find(context_.block)) {
      requests_hazard = queue[i].requests_hazard;
      count += requests_hazard ? 0 : 1;
      queue.erase(i);
    }
    if (count != 0) act(Verb::kRetire, p, count);
    if (requests_hazard) {
      b_.granted.insert(p);
      act(Verb::kGrantHazard, p);
    }
    if (count != 0 || requests_hazard) act(Verb::kWake);
  }
}

void Transition::deliver_loads() {
  b_.loading.for_each([&](unsigned p) { act(Verb::kCompleteLoads, p); });
  b_.loading.clear();
}

void Transition::end_fetches() {
  if (b_.fetching.empty() || masks_words()) return;
  b_.fetching.clear();
  act(Verb::kWake);
}

// (S4) What is forwarded before the reply of the node's own request was ordered before it, and is served from the copy
// that the request has still; what comes after waits for completion.
bool Transition::receive_forward(const BlockMessage& m) {
  if (b_.has_forwarded_exclusive) return false;  // all later ones go to that requester
  if (b_.state == State::kInvalid && b_.pending != Pending::kReadExclusive && b_.pending != Pending::kUpgrade)
    return false;
  if (m.kind == MessageKind::kForwardRead) {
    if (b_.forwarded_reads.contains(m.requester)) return false;
    b_.forwarded_reads.insert(m.requester);
  } else {
    b_.has_forwarded_exclusive = true;
    b_.forwarded_exclusive = m.requester;
    b_.forwarded_acks = m.acks;
  }
  serve_forwarded();
  advance();
  return true;
}

void Transition::serve_forwarded() {
  if (b_.replied || b_.state == State::kInvalid || !b_.granted.empty()) return;
  if (!b_.forwarded_reads.empty()) supply_readers();
  if (b_.has_forwarded_exclusive) supply_successor();
}

// Section 2.3: no processor may be between a check and its access. Nor may one be inside a batch (section 4.1). Hazards
// say who is (the shell defers what they stand in the way of).
void Transition::supply_readers() {
  act(Verb::kLowerToShared);
  b_.state = State::kShared;
  act(Verb::kCopy);
  b_.forwarded_reads.for_each([&](NodeId n) { to(n, {.kind = MessageKind::kData, .requester = n}, Verb::kSendCopy); });
  b_.forwarded_reads.clear();
}

// The frame must not be readable any more when the acknowledgement, or the data, can be acted upon.
void Transition::supply_successor() {
  act(Verb::kLowerToInvalid);
  act(Verb::kCopy);
  b_.state = State::kInvalid;
  act(Verb::kWriteFlags);
  b_.has_forwarded_exclusive = false;
  const NodeId successor = b_.forwarded_exclusive;
  to(successor, {.kind = MessageKind::kDataExclusive, .requester = successor, .acks = b_.forwarded_acks},
     Verb::kSendCopy);
}

bool Transition::receive_invalidation(NodeId requester) {
  if (b_.has_invalidation || b_.replied) return false;
  if (b_.pending != Pending::kRead && b_.state != State::kShared) return false;
  b_.has_invalidation = true;
  b_.invalidation = requester;
  // From the home, while the data come from the owner: it is answered when they have.
  if (b_.pending == Pending::kRead) return true;
  invalidate();
  advance();
  return true;
}

void Transition::invalidate() {
  b_.has_invalidation = false;
  act(Verb::kLowerToInvalid);
  b_.state = State::kInvalid;
  act(Verb::kWriteFlags);
  to(b_.invalidation, {.kind = MessageKind::kInvalidated, .requester = b_.invalidation});
}

}  // namespace

Right inline_right(const Block& block, const Context& context, const Node& node) {
  if (!block.is_readable() || masks_words(node, context.block)) return Right::kNone;
  return is_storable(block, context) ? Right::kWrite : Right::kRead;
}

bool must_wait(const Processor& processor) {
  return processor.queue.has_waiting();
}

Outcome on_load(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, context, node, actions);
  const Outcome outcome = t.load(processor);
  t.process_self_messages();
  return outcome;
}

Outcome on_fetch(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, context, node, actions);
  const Outcome outcome = t.fetch(processor);
  t.process_self_messages();
  return outcome;
}

Outcome on_store(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, context, node, actions);
  const Outcome outcome = t.store(processor);
  t.process_self_messages();
  return outcome;
}

Outcome on_request_hazard(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, context, node, actions);
  const Outcome outcome = t.request_hazard(processor);
  t.process_self_messages();
  return outcome;
}

bool on_hazard_published(Block& block, unsigned processor) {
  MG_CHECK(block.granted.contains(processor), processor);
  block.granted.erase(processor);
  return block.granted.empty() && (!block.forwarded_reads.empty() || block.has_forwarded_exclusive);
}

void on_prefetch_exclusive(Block& block, const Context& context, Node& node, Actions& actions) {
  Transition t(block, context, node, actions);
  t.prefetch();
  t.process_self_messages();
}

Outcome on_conditional(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, context, node, actions);
  const Outcome outcome = t.conditional(processor);
  t.process_self_messages();
  return outcome;
}

bool on_fence(Model model, Node& node, unsigned processor) {
  Processor& me = node.processors[processor];
  if (!me.queue.empty()) return false;
  if (model != Model::kRc) return true;
  if (!me.fencing) {
    me.fence = node.epochs.fence();
    me.fencing = true;
  }
  if (!node.epochs.has_passed(me.fence)) return false;
  me.fencing = false;
  me.fence = 0;
  return true;
}

void on_advance(Block& block, const Context& context, Node& node, Actions& actions) {
  Transition t(block, context, node, actions);
  t.advance();
  t.process_self_messages();
}

bool on_message(Block& block, const Context& context, Node& node, NodeId from, const BlockMessage& message,
                Actions& actions) {
  Transition t(block, context, node, actions);
  const bool possible = t.message(from, message);
  if (possible) t.process_self_messages();
  return possible;
}

}  // namespace multigrain::shasta
