// The transitions of Shasta: client and directory of one block at one node. Sections in comments are shasta.txt's.

#include "coherence/shasta/engine.h"

#include <memory>

#include "base/error.h"

namespace multigrain::shasta {

const char* name(Kind kind) {
  switch (kind) {
    case Kind::kRead:
      return "read";
    case Kind::kReadExclusive:
      return "read-exclusive";
    case Kind::kUpgrade:
      return "upgrade";
    case Kind::kStoreConditional:
      return "store-conditional";
    case Kind::kForwardRead:
      return "forwarded read";
    case Kind::kForwardReadExclusive:
      return "forwarded read-exclusive";
    case Kind::kInvalidate:
      return "invalidate";
    case Kind::kData:
      return "data";
    case Kind::kDataExclusive:
      return "exclusive data";
    case Kind::kUpgraded:
      return "upgraded";
    case Kind::kConditionalFailed:
      return "conditional failed";
    case Kind::kInvalidated:
      return "invalidated";
    case Kind::kKindCount:
      break;
  }
  return "?";
}

bool StoreQueue::has_waiting() const {
  for (size_t i = 0; i < size_; ++i)
    if (entries_[i].waits) return true;
  return false;
}

bool StoreQueue::hides(BlockId block) const {
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

uint64_t Epochs::begin() {
  ++counts_[current_ % kCapacity];
  return current_;
}

void Epochs::end(uint64_t epoch) {
  MG_CHECK(epoch >= oldest_ && epoch <= current_ && counts_[epoch % kCapacity] > 0, epoch);
  --counts_[epoch % kCapacity];
  retire();
}

uint64_t Epochs::fence() {
  // With nothing in the current epoch there may be something in earlier ones, of which others' fences have made ends.
  if (counts_[current_ % kCapacity] == 0) return current_ - 1;
  MG_CHECK(current_ + 1 - oldest_ < kCapacity);
  return current_++;
}

void Epochs::retire() {
  while (oldest_ < current_ && counts_[oldest_ % kCapacity] == 0) ++oldest_;
}

void Actions::push(const Action& action) {
  MG_CHECK(size_ < kCapacity);
  std::construct_at(&items_[size_], action);
  ++size_;
}

Block initial_block(const Place& place) {
  Block block;
  if (place.is_home()) {
    block.state = State::kExclusive;
    block.owner = place.self;
    block.sharers.insert(place.self);
  }
  return block;
}

namespace {

// One transition: the event itself and everything that the home says to itself because of it.
class Transition {
 public:
  Transition(Block& block, const Place& place, Node& node, Actions& actions)
      : b_(block), place_(place), node_(node), actions_(actions) {}

  Outcome load(unsigned p);
  Outcome store(unsigned p, bool atomic);
  Outcome load_locked(unsigned p);
  Outcome store_conditional(unsigned p);
  Outcome batch(unsigned p, bool stores);
  void batch_end(unsigned p, bool ran);
  void prefetch();
  bool downgraded(unsigned p);
  bool message(NodeId from, const Message& m);
  // Does what can be done now: retires stores, asks for what is wanted.
  void advance();
  // Handles what the home has said to itself.
  void settle();

 private:
  // --- Directory
  bool serve_request(NodeId from, Kind kind);
  [[nodiscard]] NodeId source() const;

  // --- Client
  bool client_message(NodeId from, const Message& m);
  bool receive_data();
  bool receive_exclusive(const Message& m);
  bool receive_forward(const Message& m);
  bool receive_invalidation(NodeId requester);
  void request_exclusive();
  void exclusive_replied();
  void check_complete();
  void retire();
  void conditional_succeeds();
  void deliver_loads();
  void hold_for_reading();
  void hold_for_storing();
  void serve_forwarded();
  void begin_downgrade(Downgrade to);
  void lower(unsigned p);
  void finish_downgrade();
  void lose_copy();

  [[nodiscard]] Processor& processor(unsigned p) {
    MG_CHECK(p < node_.processors.size(), p);
    return node_.processors[p];
  }
  [[nodiscard]] bool is_rc() const { return place_.model == Model::kRc; }
  // The node may store. Under rc acknowledgements may be missing: whoever sees the store has to fence before it tells.
  [[nodiscard]] bool is_storable() const {
    return b_.state == State::kExclusive && b_.downgrade == Downgrade::kNone &&
           (is_rc() || b_.pending == Pending::kNone);
  }
  [[nodiscard]] bool is_storable(unsigned p) {
    return is_storable() && stores_inline(place_.model, processor(p)) && !hides_words();
  }
  void grant_private(unsigned p) {
    b_.readers.insert(p);
    b_.writers.insert(p);
  }
  [[nodiscard]] bool wants_exclusive() const;
  [[nodiscard]] bool hides_words() const {
    for (const Processor& p : node_.processors)
      if (p.queue.hides(place_.block)) return true;
    return false;
  }
  bool may_hide(unsigned p);

  void to(NodeId node, const Message& m, Verb verb = Verb::kSend);
  void to_home(Kind kind) { to(place_.home, {.kind = kind, .requester = place_.self}); }
  void act(Verb verb, unsigned p = 0, unsigned count = 0) {
    actions_.push({.verb = verb,
                   .processor = static_cast<uint8_t>(p),
                   .count = static_cast<uint8_t>(count),
                   .node = {},
                   .block = place_.block,
                   .message = {}});
  }

  static constexpr size_t kSelfCapacity = 8;

  Block& b_;
  const Place& place_;
  Node& node_;
  Actions& actions_;
  std::array<Message, kSelfCapacity> self_{};
  size_t self_head_ = 0;
  size_t self_tail_ = 0;
};

void Transition::to(NodeId node, const Message& m, Verb verb) {
  if (node == place_.self) {
    MG_CHECK(self_tail_ < kSelfCapacity && verb == Verb::kSend);
    self_[self_tail_++] = m;
    return;
  }
  actions_.push({.verb = verb, .node = node, .block = place_.block, .message = m});
}

void Transition::settle() {
  while (self_head_ != self_tail_) {
    const Message m = self_[self_head_++];
    MG_CHECK(message(place_.self, m), static_cast<uint64_t>(m.kind));
  }
}

bool Transition::message(NodeId from, const Message& m) {
  if (m.kind <= Kind::kStoreConditional) return place_.is_home() && serve_request(from, m.kind);
  return client_message(from, m);
}

// --- Directory. It changes when a request arrives, and never waits for anything (S4). ------------------------------

// Who supplies the data: the home if it has a copy, which saves a hop; else the owner.
NodeId Transition::source() const {
  return b_.sharers.contains(place_.self) && b_.is_readable() ? place_.self : b_.owner;
}

bool Transition::serve_request(NodeId from, Kind kind) {
  const bool is_sharer = b_.sharers.contains(from);
  if (kind == Kind::kRead) {
    if (is_sharer) return false;
    const NodeId supplier = source();
    b_.sharers.insert(from);
    to(supplier, {.kind = Kind::kForwardRead, .requester = from});
    return true;
  }
  if (kind == Kind::kReadExclusive && is_sharer) return false;
  if (kind == Kind::kStoreConditional && !is_sharer) {
    to(from, {.kind = Kind::kConditionalFailed, .requester = from});
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
    to(from, {.kind = Kind::kUpgraded, .requester = from, .acks = acks});
  } else {
    to(supplier, {.kind = Kind::kForwardReadExclusive, .requester = from, .acks = acks});
  }
  others.for_each([&](NodeId n) { to(n, {.kind = Kind::kInvalidate, .requester = from}); });
  return true;
}

// --- Processors ------------------------------------------------------------------------------------------------------

Outcome Transition::load(unsigned p) {
  if (b_.is_readable()) return Outcome::kResolved;
  b_.loading.insert(p);
  advance();
  return Outcome::kWait;
}

Outcome Transition::store(unsigned p, bool atomic) {
  Processor& me = processor(p);
  // A processor may have seen what another's batch has left here: its own store comes after that.
  if (b_.flags_owed || b_.reissuing || me.queue.full()) return Outcome::kWait;
  if (is_storable(p)) {
    grant_private(p);
    return Outcome::kResolved;
  }
  const bool waits = atomic || place_.model == Model::kSc || !may_hide(p);
  me.queue.push({.block = place_.block, .waits = waits});
  if (!waits) act(Verb::kHide, p);
  // Under tso a store behind others asks too, so that the requests overlap; it asks again if it loses the block.
  if (b_.pending == Pending::kNone && b_.downgrade == Downgrade::kNone && b_.state != State::kExclusive)
    request_exclusive();
  advance();
  return Outcome::kQueued;
}

// (S9) What the processor stores must read as a miss, even to itself, while it runs on. No processor of the node may
// then use the block unchecked: private states are lowered, and if one may be in use now, the store is not hidden.
bool Transition::may_hide(unsigned p) {
  for (unsigned q = 0; q < node_.processors.size(); ++q) {
    if (q == p) continue;
    if (b_.batch.contains(q) || (b_.readers.contains(q) && processor(q).in_application)) return false;
  }
  b_.readers.clear();
  b_.writers.clear();
  return true;
}

Outcome Transition::load_locked(unsigned p) {
  Processor& me = processor(p);
  if (!me.queue.empty()) return Outcome::kWait;
  if (is_storable(p)) {
    grant_private(p);
    return Outcome::kResolved;
  }
  // Section 3.1.2 goes by the state alone; that is not enough here, docs/shasta.md (c).
  if (b_.state == State::kShared && b_.pending == Pending::kNone && b_.downgrade == Downgrade::kNone &&
      !hides_words()) {
    b_.reserved.insert(p);
    b_.readers.insert(p);
    return Outcome::kResolved;
  }
  b_.fetching.insert(p);
  advance();
  return Outcome::kWait;
}

Outcome Transition::store_conditional(unsigned p) {
  if (!b_.reserved.contains(p) || b_.pending != Pending::kNone) {
    b_.reserved.erase(p);
    return Outcome::kFailed;
  }
  b_.pending = Pending::kStoreConditional;
  b_.conditional = static_cast<uint8_t>(p);
  if (is_rc()) b_.epoch = node_.epochs.begin();
  to_home(Kind::kStoreConditional);
  return Outcome::kWait;
}

void Transition::prefetch() {
  b_.prefetching = true;
  advance();
}

Outcome Transition::batch(unsigned p, bool stores) {
  (stores ? b_.batch_storing : b_.batch_loading).insert(p);
  advance();
  return b_.batch.contains(p) && !batch_waits(b_, p) ? Outcome::kResolved : Outcome::kWait;
}

void Transition::batch_end(unsigned p, bool ran) {
  b_.batch_loading.erase(p);
  b_.batch_storing.erase(p);
  if (!b_.batch.contains(p)) return;
  b_.batch.erase(p);
  const bool stored = b_.batch_stores.contains(p);
  b_.batch_stores.erase(p);
  if (!b_.flags_owed) return;
  if (stored && ran) {
    // Reissue (section 4.1).
    MG_CHECK(b_.pending == Pending::kNone);
    processor(p).queue.push({.block = place_.block});
    b_.reissuing = true;
    act(Verb::kCapture, p);
  }
  if (!b_.batch.empty()) return;
  b_.flags_owed = false;
  act(Verb::kFlag);
  if (b_.reissuing) {
    // Others may have seen these stores: who fences for the flags now waits for the stores.
    b_.pending = Pending::kReadExclusive;
    b_.epoch = b_.owed_epoch;
    to_home(Kind::kReadExclusive);
  } else {
    node_.epochs.end(b_.owed_epoch);
  }
  act(Verb::kWake);
  advance();
}

bool Transition::wants_exclusive() const {
  if (b_.prefetching || !b_.batch_storing.empty()) return true;
  for (const Processor& p : node_.processors) {
    const size_t i = p.queue.find(place_.block);
    if (i != p.queue.size() && (is_rc() || i == 0)) return true;
  }
  return false;
}

void Transition::request_exclusive() {
  b_.pending = b_.state == State::kShared ? Pending::kUpgrade : Pending::kReadExclusive;
  if (is_rc()) b_.epoch = node_.epochs.begin();
  to_home(b_.state == State::kShared ? Kind::kUpgrade : Kind::kReadExclusive);
}

void Transition::advance() {
  if (b_.pending != Pending::kNone || b_.downgrade != Downgrade::kNone || b_.flags_owed) return;
  if (b_.state == State::kExclusive) {
    b_.prefetching = false;
    retire();
    hold_for_storing();
  }
  if (b_.is_readable()) {
    b_.fetching.clear();
    deliver_loads();
    hold_for_reading();
  }
  if (b_.state == State::kExclusive) return;
  if (wants_exclusive()) {
    request_exclusive();
  } else if (!b_.is_readable() && !(b_.loading | b_.fetching | b_.batch_loading).empty()) {
    b_.pending = Pending::kRead;
    to_home(Kind::kRead);
  }
}

// --- Client ----------------------------------------------------------------------------------------------------------

bool Transition::client_message(NodeId from, const Message& m) {
  switch (m.kind) {
    case Kind::kForwardRead:
    case Kind::kForwardReadExclusive:
      return from == place_.home && m.requester != place_.self && receive_forward(m);
    case Kind::kInvalidate:
      return from == place_.home && m.requester != place_.self && receive_invalidation(m.requester);
    case Kind::kData:
      return from != place_.self && receive_data();
    case Kind::kDataExclusive:
      return from != place_.self && receive_exclusive(m);
    case Kind::kUpgraded:
      return from == place_.home && receive_exclusive(m);
    case Kind::kConditionalFailed:
      if (from != place_.home || b_.pending != Pending::kStoreConditional || b_.replied) return false;
      b_.pending = Pending::kNone;
      if (is_rc()) node_.epochs.end(b_.epoch);
      b_.reserved.erase(b_.conditional);
      act(Verb::kConditionalFailed, b_.conditional);
      act(Verb::kWake);
      advance();
      return true;
    case Kind::kInvalidated:
      if (b_.pending == Pending::kNone || b_.pending == Pending::kRead || from == place_.self) return false;
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
  hold_for_reading();
  act(Verb::kWake);
  // Ordered after the read: the loads that waited were made before it.
  if (b_.has_invalidation) begin_downgrade(Downgrade::kToInvalid);
  advance();
  return true;
}

bool Transition::receive_exclusive(const Message& m) {
  const bool has_data = m.kind == Kind::kDataExclusive;
  if (b_.replied || b_.downgrade != Downgrade::kNone) return false;
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
  if (b_.flags_owed) {
    // An upgrade lost its copy and got another: batches that hold the block load from this one.
    b_.flags_owed = false;
    node_.epochs.end(b_.owed_epoch);
  }
  b_.state = State::kExclusive;
  b_.replied = true;
  b_.acks = static_cast<int16_t>(b_.acks + m.acks);
  if (b_.acks < 0) return false;
  exclusive_replied();
  return true;
}

void Transition::exclusive_replied() {
  if (b_.pending != Pending::kStoreConditional) b_.reserved.clear();
  deliver_loads();
  hold_for_reading();
  b_.prefetching = false;
  if (is_rc()) {
    if (b_.pending == Pending::kStoreConditional) conditional_succeeds();
    retire();
    hold_for_storing();
  }
  act(Verb::kWake);
  check_complete();
}

void Transition::conditional_succeeds() {
  b_.reserved.clear();
  if (!hides_words()) grant_private(b_.conditional);  // (S9)
  act(Verb::kStoreConditional, b_.conditional);
  act(Verb::kConditionalSucceeded, b_.conditional);
}

void Transition::check_complete() {
  if (!b_.replied || b_.acks != 0) return;
  if (is_rc()) {
    node_.epochs.end(b_.epoch);
  } else if (b_.pending == Pending::kStoreConditional) {
    conditional_succeeds();
  }
  b_.pending = Pending::kNone;
  b_.replied = false;
  act(Verb::kWake);
  // First what waits here, so that nobody is starved; then what has been ordered after it.
  retire();
  hold_for_storing();
  serve_forwarded();
  advance();
}

// Makes the queued stores that may be made now (section 3.2.3).
void Transition::retire() {
  if (!is_storable()) return;
  for (unsigned p = 0; p < node_.processors.size(); ++p) {
    StoreQueue& queue = node_.processors[p].queue;
    unsigned count = 0;
    for (;;) {
      const size_t i = queue.find(place_.block);
      if (i == queue.size()) break;
      if (!is_rc() && i != 0) break;
      queue.erase(i);
      ++count;
    }
    if (count == 0) continue;
    act(Verb::kRetire, p, count);
    act(Verb::kWake);
    if (!hides_words()) grant_private(p);
    if (place_.model == Model::kTso && !queue.empty())
      actions_.push({.verb = Verb::kAdvance, .node = {}, .block = queue[0].block, .message = {}});
  }
  b_.reissuing = false;
}

void Transition::deliver_loads() {
  b_.loading.for_each([&](unsigned p) { act(Verb::kDeliver, p); });
  b_.loading.clear();
}

void Transition::hold_for_reading() {
  if (b_.downgrade != Downgrade::kNone || b_.batch_loading.empty() || hides_words()) return;
  b_.batch = b_.batch | b_.batch_loading;
  b_.readers = b_.readers | b_.batch_loading;
  b_.batch_loading.clear();
  act(Verb::kWake);
}

void Transition::hold_for_storing() {
  if (!is_storable() || b_.batch_storing.empty() || hides_words()) return;
  b_.batch = b_.batch | b_.batch_storing;
  b_.batch_stores = b_.batch_stores | b_.batch_storing;
  b_.batch_storing.for_each([&](unsigned p) { grant_private(p); });
  b_.batch_storing.clear();
  act(Verb::kWake);
}

// (S4) What is forwarded before the reply of the node's own request was ordered before it, and is served from the copy
// that the request has still; what comes after waits for completion.
bool Transition::receive_forward(const Message& m) {
  if (b_.has_forwarded_exclusive) return false;  // all later ones go to that requester
  if (b_.state == State::kInvalid && b_.pending != Pending::kReadExclusive && b_.pending != Pending::kUpgrade)
    return false;
  if (m.kind == Kind::kForwardRead) {
    if (b_.forwarded_reads.contains(m.requester)) return false;
    b_.forwarded_reads.insert(m.requester);
  } else {
    b_.has_forwarded_exclusive = true;
    b_.forwarded_exclusive = m.requester;
    b_.forwarded_acks = m.acks;
  }
  serve_forwarded();
  return true;
}

void Transition::serve_forwarded() {
  if (b_.replied || b_.state == State::kInvalid || b_.downgrade != Downgrade::kNone) return;
  if (!b_.forwarded_reads.empty()) {
    begin_downgrade(Downgrade::kToShared);
  } else if (b_.has_forwarded_exclusive) {
    // Apart from what is forwarded from now on: that is ordered after a request of this node, if one is out.
    b_.has_forwarded_exclusive = false;
    b_.has_successor = true;
    b_.successor = b_.forwarded_exclusive;
    b_.successor_acks = b_.forwarded_acks;
    begin_downgrade(Downgrade::kToInvalid);
  }
}

bool Transition::receive_invalidation(NodeId requester) {
  if (b_.has_invalidation || b_.replied || b_.downgrade != Downgrade::kNone) return false;
  if (b_.pending == Pending::kRead) {
    // From the home, while the data come from the owner. It is answered when they have.
    b_.has_invalidation = true;
    b_.invalidation = requester;
    return true;
  }
  if (b_.state != State::kShared) return false;
  b_.has_invalidation = true;
  b_.invalidation = requester;
  begin_downgrade(Downgrade::kToInvalid);
  return true;
}

// Section 2.3: messages to exactly those processors that may be between a check and its access; the others' private
// states are lowered directly (section 4.3.4).
void Transition::begin_downgrade(Downgrade to) {
  b_.downgrade = to;
  if (to == Downgrade::kToInvalid) b_.reserved.clear();
  const ProcessorSet targets = to == Downgrade::kToShared ? b_.writers : b_.readers;
  targets.for_each([&](unsigned p) {
    if (processor(p).in_application) {
      b_.downgrading.insert(p);
      act(Verb::kDowngrade, p);
    } else {
      lower(p);
    }
  });
  if (b_.downgrading.empty()) finish_downgrade();
}

void Transition::lower(unsigned p) {
  b_.writers.erase(p);
  if (b_.downgrade == Downgrade::kToInvalid) b_.readers.erase(p);
  // A batch that has lost its exclusive copy to readers must ask again.
  if (b_.downgrade == Downgrade::kToShared && b_.batch_stores.contains(p)) {
    b_.batch_stores.erase(p);
    b_.batch.erase(p);
    act(Verb::kWake);
  }
}

bool Transition::downgraded(unsigned p) {
  if (!b_.downgrading.contains(p)) return false;
  b_.downgrading.erase(p);
  lower(p);
  if (b_.downgrading.empty()) finish_downgrade();
  return true;
}

void Transition::finish_downgrade() {
  const Downgrade to = b_.downgrade;
  b_.downgrade = Downgrade::kNone;
  if (to == Downgrade::kToShared) {
    b_.state = State::kShared;
    const NodeSet readers = b_.forwarded_reads;
    b_.forwarded_reads.clear();
    act(Verb::kCopy);
    readers.for_each([&](NodeId n) { this->to(n, {.kind = Kind::kData, .requester = n}, Verb::kSendCopy); });
    serve_forwarded();
    act(Verb::kWake);
    advance();
    return;
  }
  // The frame must not be readable any more when the acknowledgement, or the data, can be acted upon.
  if (b_.has_invalidation) {
    b_.has_invalidation = false;
    lose_copy();
    this->to(b_.invalidation, {.kind = Kind::kInvalidated, .requester = b_.invalidation});
  } else {
    MG_CHECK(b_.has_successor);
    b_.has_successor = false;
    act(Verb::kCopy);
    lose_copy();
    this->to(b_.successor, {.kind = Kind::kDataExclusive, .requester = b_.successor, .acks = b_.successor_acks},
             Verb::kSendCopy);
  }
  act(Verb::kWake);
  advance();
}

void Transition::lose_copy() {
  b_.state = State::kInvalid;
  if (is_rc() && !b_.batch.empty()) {
    // Section 4.1: the batch's loads still get what was here. A fence of the node's other processors, who may see it
    // too, waits for the end of the batch.
    b_.flags_owed = true;
    b_.owed_epoch = node_.epochs.begin();
    return;
  }
  b_.batch.clear();
  b_.batch_stores.clear();
  act(Verb::kFlag);
}

}  // namespace

Outcome on_load(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, place, node, actions);
  const Outcome outcome = t.load(processor);
  t.settle();
  return outcome;
}

bool stores_inline(Model model, const Processor& processor) {
  return model == Model::kRc || processor.queue.empty();
}

bool must_wait(const Processor& processor) {
  return processor.queue.has_waiting();
}

Outcome on_store(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, place, node, actions);
  const Outcome outcome = t.store(processor, false);
  t.settle();
  return outcome;
}

Outcome on_atomic(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, place, node, actions);
  const Outcome outcome = t.store(processor, true);
  t.settle();
  return outcome;
}

void on_prefetch_exclusive(Block& block, const Place& place, Node& node, Actions& actions) {
  Transition t(block, place, node, actions);
  t.prefetch();
  t.settle();
}

Outcome on_load_locked(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, place, node, actions);
  const Outcome outcome = t.load_locked(processor);
  t.settle();
  return outcome;
}

Outcome on_store_conditional(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, place, node, actions);
  const Outcome outcome = t.store_conditional(processor);
  t.settle();
  return outcome;
}

Outcome on_batch(Block& block, const Place& place, Node& node, unsigned processor, bool stores, Actions& actions) {
  Transition t(block, place, node, actions);
  const Outcome outcome = t.batch(processor, stores);
  t.settle();
  return outcome;
}

bool batch_is_ready(const Block& block, const Place& place, const Node& node, unsigned processor, bool stores) {
  if (!block.batch.contains(processor) || (stores && !block.batch_stores.contains(processor))) return false;
  // Lowered, and others' answers are awaited: soon it is lost, but now a store would go with the data, and be reissued.
  if (!block.flags_owed && !(stores ? block.writers : block.readers).contains(processor)) return false;
  const Processor& me = node.processors[processor];
  return stores_inline(place.model, me) && me.queue.size() + StoreQueue::kBatchBlocks <= StoreQueue::kCapacity;
}

bool batch_waits(const Block& block, unsigned processor) {
  return block.batch_loading.contains(processor) || block.batch_storing.contains(processor);
}

void on_batch_end(Block& block, const Place& place, Node& node, unsigned processor, bool ran, Actions& actions) {
  Transition t(block, place, node, actions);
  t.batch_end(processor, ran);
  t.settle();
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

bool on_downgraded(Block& block, const Place& place, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, place, node, actions);
  const bool was_asked = t.downgraded(processor);
  t.settle();
  return was_asked;
}

void on_advance(Block& block, const Place& place, Node& node, Actions& actions) {
  Transition t(block, place, node, actions);
  t.advance();
  t.settle();
}

bool on_message(Block& block, const Place& place, Node& node, NodeId from, const Message& message, Actions& actions) {
  Transition t(block, place, node, actions);
  const bool possible = t.message(from, message);
  if (possible) t.settle();
  return possible;
}

}  // namespace multigrain::shasta
