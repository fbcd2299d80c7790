// These are the transitions of Shasta: one block at one node, and its directory entry at the home.
//
// This is the table of the requests of processors. `pending` is the request that is out; sections are [Shasta]'s.
//
//   event            state, pending           what happens                                              function
//   ---------------  -----------------------  --------------------------------------------------------  -------------------
//   load             readable                 the frame has the value                                   on_load_readable
//                    invalid, none            read to the home; the load waits                          on_load_invalid
//                    invalid, any             the load waits for the reply                              on_load_pending
//   fetch            readable, nothing masked done                                                      on_fetch_readable
//                    invalid, none            read to the home; the fetch waits                         on_fetch_invalid
//                    any, any                 the fetch waits for the reply                             on_fetch_pending
//   store, or        exclusive, complete      the store is made now; the hazard is published now        on_store_exclusive
//   a hazard         shared, none             it is queued; upgrade to the home                         on_store_shared
//   of stores        invalid, none            it is queued; read-exclusive to the home                  on_store_invalid
//                    any, any                 it is queued                                              on_store_pending
//   prefetch         exclusive, none          what is forwarded here and waits is served                on_prefetch_exclusive
//   (exclusive)      shared, none             upgrade to the home                                       on_prefetch_shared
//                    invalid, none            read-exclusive to the home                                on_prefetch_invalid
//                    any, any                 asked for when the request that is out has been answered  on_prefetch_pending
//
// This is the table of the events that come by a message, or when no request is out any more.
//
//   event            state, pending           what happens                                              function
//   ---------------  -----------------------  --------------------------------------------------------  -------------------
//   data             invalid, read            fill, loads that wait get their value; shared             on_data
//   exclusive data   invalid, read-exclusive  fill; exclusive, replied                                  on_exclusive_data
//                    or upgrade
//   upgraded         shared, upgrade          exclusive, replied                                        on_upgraded
//   invalidated      any, exclusive request   one acknowledgement less; it may come before the reply    on_invalidated
//   (the last one)   exclusive, replied       complete: nothing is out any more                         on_complete
//   forwarded read,  readable, not replied,   to shared, data to the requester; or to invalid,          on_forwarded_read,
//   read-exclusive   no hazard granted        exclusive data to it, flag value                          .._read_exclusive,
//                    else                     waits for completion, or for the granted hazard           serve_forwarded
//   invalidate       invalid, read            waits for the data, which was ordered before it           on_invalidate_reading
//                    shared, none or upgrade  to invalid, flag value, acknowledge                       on_invalidate_shared
//   nothing is out   exclusive                stores retire, hazards are granted, loads and fetches     on_idle_exclusive
//                                             end; then what has been forwarded is served
//                    shared                   fetches end; upgrade, if a store is queued                on_idle_shared
//                    invalid                  read-exclusive, or read, if a processor waits             on_idle_invalid
//
// This is the table of the directory, at the home. It changes when a request arrives, and never waits for anything
// (S4).
//
//   request          requester is             what happens                                              function
//   ---------------  -----------------------  --------------------------------------------------------  -------------------
//   read             no sharer                joins the sharers; forwarded to the supplier              on_read_request
//   read-exclusive   no sharer                owner and only sharer; forwarded to the supplier, with    on_read_exclusive_
//                                             the number of invalidations; other sharers: invalidate    request
//   upgrade          a sharer                 owner and only sharer; upgraded, with the number of       on_upgrade_request
//                                             invalidations; other sharers: invalidate
//                    no sharer any more       as read-exclusive                                         on_read_exclusive_
//                                                                                                       request
//
// The supplier is the home if it has a copy, which saves a hop; else the owner. No correct node sends what is not in
// the tables: on_message returns false then.

#include "coherence/shasta/transitions.h"

#include <algorithm>

#include "base/error.h"

namespace multigrain::shasta {
namespace {

// This makes one transition: the event itself, and all messages of the home to itself that follow from it.
class Transition {
 public:
  Transition(Block& block, const Context& context, Node& node, Actions& actions)
      : b_(block), context_(context), node_(node), actions_(actions) {}

  // A processor puts entries of these kinds into its queue.
  enum class Queued : uint8_t { kStore, kHazard };

  // The events. Each calls the function of the block's state.
  Outcome load(unsigned p);
  Outcome fetch(unsigned p);
  Outcome store(unsigned p, Queued what);
  void prefetch_exclusive();
  bool message(NodeId from, const BlockMessage& m);
  void advance();
  // Handles the home's messages to itself.
  void process_self_messages();

 private:
  // --- Requests of processors
  static Outcome on_load_readable() { return Outcome::kResolved; }
  Outcome on_load_invalid(unsigned p);
  Outcome on_load_pending(unsigned p);
  static Outcome on_fetch_readable() { return Outcome::kResolved; }
  Outcome on_fetch_invalid(unsigned p);
  Outcome on_fetch_pending(unsigned p);
  static Outcome on_store_exclusive() { return Outcome::kResolved; }
  Outcome on_store_shared(unsigned p, Queued what);
  Outcome on_store_invalid(unsigned p, Queued what);
  Outcome on_store_pending(unsigned p, Queued what);
  void on_prefetch_exclusive();
  void on_prefetch_shared();
  void on_prefetch_invalid();
  void on_prefetch_pending();

  // --- Messages, and the moment when no request is out any more
  bool requester_message(NodeId from, const BlockMessage& m);
  bool on_data();
  bool on_exclusive_data(const BlockMessage& m);
  bool on_upgraded(const BlockMessage& m);
  bool on_invalidated();
  void on_complete();
  bool on_forwarded_read(NodeId requester);
  bool on_forwarded_read_exclusive(const BlockMessage& m);
  bool on_invalidate(NodeId requester);
  void on_invalidate_reading(NodeId requester);
  void on_invalidate_shared(NodeId requester);
  void on_idle_exclusive();
  void on_idle_shared();
  void on_idle_invalid();

  // --- The directory
  bool directory_message(NodeId from, MessageKind kind);
  bool on_read_request(NodeId from);
  bool on_read_exclusive_request(NodeId from);
  bool on_upgrade_request(NodeId from);

  // --- Steps that the functions above share
  void request_read();
  void request_upgrade();
  void request_read_exclusive();
  void queue(unsigned p, Queued what);
  bool exclusive_reply(uint16_t acks);
  void retire();
  void deliver_loads();
  void end_fetches();
  [[nodiscard]] bool can_be_forwarded_to() const;
  void serve_forwarded();
  void supply_readers();
  void supply_successor();
  void invalidate(NodeId requester);
  void make_owner(NodeId requester, NodeSet to_invalidate);
  [[nodiscard]] NodeId supplier() const;

  [[nodiscard]] Processor& processor(unsigned p) {
    MG_CHECK(p < node_.processors.size(), p);
    return node_.processors[p];
  }
  [[nodiscard]] bool is_rc() const { return context_.model == Model::kRc; }
  [[nodiscard]] bool is_storable() const { return shasta::is_storable(b_, context_); }
  [[nodiscard]] bool is_wanted_exclusive() const;
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
  if (is_request(m.kind)) return context_.is_home() && directory_message(from, m.kind);
  return requester_message(from, m);
}

// --- Load ------------------------------------------------------------------------------------------------------------

Outcome Transition::load(unsigned p) {
  if (b_.is_readable()) return on_load_readable();
  return b_.pending == Pending::kNone ? on_load_invalid(p) : on_load_pending(p);
}

Outcome Transition::on_load_invalid(unsigned p) {
  b_.loading.insert(p);
  request_read();
  return Outcome::kWait;
}

Outcome Transition::on_load_pending(unsigned p) {
  b_.loading.insert(p);
  return Outcome::kWait;
}

// --- Fetch: a readable copy for a hazard (section 2.2, batches) ------------------------------------------------------

Outcome Transition::fetch(unsigned p) {
  if (b_.is_readable() && !masks_words()) return on_fetch_readable();
  return b_.pending == Pending::kNone ? on_fetch_invalid(p) : on_fetch_pending(p);
}

Outcome Transition::on_fetch_invalid(unsigned p) {
  b_.fetching.insert(p);
  request_read();
  return Outcome::kWait;
}

// If words of the block are masked by a queued store, the request for that store is out.
Outcome Transition::on_fetch_pending(unsigned p) {
  b_.fetching.insert(p);
  return Outcome::kWait;
}

// --- Store, and hazard of stores (sections 2.1 and 3.2.3) ------------------------------------------------------------

Outcome Transition::store(unsigned p, Queued what) {
  if (processor(p).queue.full()) return Outcome::kWait;
  if (is_storable()) return on_store_exclusive();
  if (b_.pending != Pending::kNone) return on_store_pending(p, what);
  return b_.state == State::kShared ? on_store_shared(p, what) : on_store_invalid(p, what);
}

Outcome Transition::on_store_shared(unsigned p, Queued what) {
  queue(p, what);
  request_upgrade();
  return Outcome::kQueued;
}

Outcome Transition::on_store_invalid(unsigned p, Queued what) {
  queue(p, what);
  request_read_exclusive();
  return Outcome::kQueued;
}

Outcome Transition::on_store_pending(unsigned p, Queued what) {
  queue(p, what);
  return Outcome::kQueued;
}

// Under sc the processor waits for what it has queued. Under rc it waits for hazards only, and queued stores are
// masked.
void Transition::queue(unsigned p, Queued what) {
  const bool masks = is_rc() && what == Queued::kStore;
  // (S8) Masked words must read as a miss while the processor runs on, even to the processor itself.
  if (masks && b_.is_readable() && !masks_words()) act(Verb::kLowerToInvalid);
  processor(p).queue.push({.block = context_.block, .waits = !masks, .requests_hazard = what == Queued::kHazard});
  if (masks) act(Verb::kMask, p);
}

// --- Prefetch-exclusive (section 3.1.2) ------------------------------------------------------------------------------

void Transition::prefetch_exclusive() {
  if (b_.pending != Pending::kNone) return on_prefetch_pending();
  switch (b_.state) {
    case State::kExclusive:
      return on_prefetch_exclusive();
    case State::kShared:
      return on_prefetch_shared();
    case State::kInvalid:
      return on_prefetch_invalid();
  }
}

void Transition::on_prefetch_exclusive() {
  on_idle_exclusive();
}

void Transition::on_prefetch_shared() {
  b_.prefetching = true;
  request_upgrade();
}

void Transition::on_prefetch_invalid() {
  b_.prefetching = true;
  request_read_exclusive();
}

void Transition::on_prefetch_pending() {
  b_.prefetching = true;
}

// --- Requests --------------------------------------------------------------------------------------------------------

void Transition::request_read() {
  b_.pending = Pending::kRead;
  to_home(MessageKind::kRead);
}

void Transition::request_upgrade() {
  b_.pending = Pending::kUpgrade;
  if (is_rc()) b_.epoch = node_.epochs.begin();
  to_home(MessageKind::kUpgrade);
}

void Transition::request_read_exclusive() {
  b_.pending = Pending::kReadExclusive;
  if (is_rc()) b_.epoch = node_.epochs.begin();
  to_home(MessageKind::kReadExclusive);
}

// --- Messages to a requester or a sharer -----------------------------------------------------------------------------

bool Transition::requester_message(NodeId from, const BlockMessage& m) {
  const bool has_exclusive_request = b_.pending == Pending::kReadExclusive || b_.pending == Pending::kUpgrade;
  const bool from_home_for_another = from == context_.home && m.requester != context_.self;
  switch (m.kind) {
    case MessageKind::kData:
      return from != context_.self && b_.pending == Pending::kRead && on_data();
    case MessageKind::kDataExclusive:
      return from != context_.self && has_exclusive_request && !b_.replied && b_.state == State::kInvalid &&
             on_exclusive_data(m);
    case MessageKind::kUpgraded:
      return from == context_.home && b_.pending == Pending::kUpgrade && !b_.replied && b_.state == State::kShared &&
             on_upgraded(m);
    case MessageKind::kInvalidated:
      return from != context_.self && has_exclusive_request && on_invalidated();
    case MessageKind::kForwardRead:
      return from_home_for_another && on_forwarded_read(m.requester);
    case MessageKind::kForwardReadExclusive:
      return from_home_for_another && on_forwarded_read_exclusive(m);
    case MessageKind::kInvalidate:
      return from_home_for_another && on_invalidate(m.requester);
    default:
      return false;
  }
}

bool Transition::on_data() {
  b_.pending = Pending::kNone;
  b_.state = State::kShared;
  act(Verb::kFill);
  deliver_loads();
  end_fetches();
  act(Verb::kWake);
  // The invalidation was ordered after the read, so the loads that waited come before it.
  if (b_.has_invalidation) invalidate(b_.invalidation);
  advance();
  return true;
}

bool Transition::on_exclusive_data(const BlockMessage& m) {
  act(Verb::kFill);
  return exclusive_reply(m.acks);
}

bool Transition::on_upgraded(const BlockMessage& m) {
  return exclusive_reply(m.acks);
}

// The block becomes exclusive. `acks` is how many acknowledgements there will be in all. Under rc stores retire at
// once.
bool Transition::exclusive_reply(uint16_t acks) {
  b_.state = State::kExclusive;
  b_.replied = true;
  b_.acks = static_cast<int16_t>(b_.acks + acks);
  if (b_.acks < 0) return false;
  deliver_loads();
  if (is_rc()) {
    b_.prefetching = false;
    retire();
  }
  end_fetches();
  act(Verb::kWake);
  if (b_.acks == 0) on_complete();
  return true;
}

bool Transition::on_invalidated() {
  if (b_.replied && b_.acks <= 0) return false;
  --b_.acks;
  if (b_.replied && b_.acks == 0) on_complete();
  return true;
}

// The processors of this node that wait come first, so that none is starved; then comes what the directory has ordered
// after the request.
void Transition::on_complete() {
  if (is_rc()) node_.epochs.end(b_.epoch);
  b_.pending = Pending::kNone;
  b_.replied = false;
  act(Verb::kWake);
  advance();
}

// (S4) A request that is forwarded here before the reply of the node's own request was ordered before that, and is
// served from the copy that the node still has. A request that is forwarded later waits for completion. After a
// forwarded read-exclusive the home forwards everything to its requester.
bool Transition::can_be_forwarded_to() const {
  const bool has_or_gets_it =
      b_.is_readable() || b_.pending == Pending::kReadExclusive || b_.pending == Pending::kUpgrade;
  return has_or_gets_it && !b_.has_forwarded_exclusive;
}

bool Transition::on_forwarded_read(NodeId requester) {
  if (!can_be_forwarded_to() || b_.forwarded_reads.contains(requester)) return false;
  b_.forwarded_reads.insert(requester);
  serve_forwarded();
  advance();
  return true;
}

bool Transition::on_forwarded_read_exclusive(const BlockMessage& m) {
  if (!can_be_forwarded_to()) return false;
  b_.has_forwarded_exclusive = true;
  b_.forwarded_exclusive = m.requester;
  b_.forwarded_acks = m.acks;
  serve_forwarded();
  advance();
  return true;
}

void Transition::serve_forwarded() {
  if (b_.replied || b_.state == State::kInvalid || !b_.granted.empty()) return;
  if (!b_.forwarded_reads.empty()) supply_readers();
  if (b_.has_forwarded_exclusive) supply_successor();
}

// Section 2.3: no processor may be between a check and its access, nor inside a batch (section 4.1). Hazards say which
// processors are, and the driver defers messages for which hazards are in the way.
void Transition::supply_readers() {
  act(Verb::kLowerToShared);
  b_.state = State::kShared;
  act(Verb::kCopy);
  b_.forwarded_reads.for_each([&](NodeId n) { to(n, {.kind = MessageKind::kData, .requester = n}, Verb::kSendCopy); });
  b_.forwarded_reads.clear();
}

// The frame must not be readable any more when the requester can act on the acknowledgement or the data.
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

bool Transition::on_invalidate(NodeId requester) {
  if (b_.has_invalidation || b_.replied) return false;
  if (b_.pending == Pending::kRead) {
    on_invalidate_reading(requester);
    return true;
  }
  if (b_.state != State::kShared) return false;
  on_invalidate_shared(requester);
  return true;
}

// The home sent the invalidation, and the owner sends the data, so the invalidation may come first. It is acknowledged
// when the data have come.
void Transition::on_invalidate_reading(NodeId requester) {
  b_.has_invalidation = true;
  b_.invalidation = requester;
}

void Transition::on_invalidate_shared(NodeId requester) {
  invalidate(requester);
  advance();
}

void Transition::invalidate(NodeId requester) {
  b_.has_invalidation = false;
  b_.invalidation = requester;
  act(Verb::kLowerToInvalid);
  b_.state = State::kInvalid;
  act(Verb::kWriteFlags);
  to(requester, {.kind = MessageKind::kInvalidated, .requester = requester});
}

// --- When no request is out any more ---------------------------------------------------------------------------------

void Transition::advance() {
  if (b_.pending != Pending::kNone) return;
  switch (b_.state) {
    case State::kExclusive:
      return on_idle_exclusive();
    case State::kShared:
      return on_idle_shared();
    case State::kInvalid:
      return on_idle_invalid();
  }
}

void Transition::on_idle_exclusive() {
  b_.prefetching = false;
  retire();
  deliver_loads();
  end_fetches();
  serve_forwarded();
}

void Transition::on_idle_shared() {
  deliver_loads();
  end_fetches();
  if (is_wanted_exclusive()) request_upgrade();
}

void Transition::on_idle_invalid() {
  if (is_wanted_exclusive()) {
    request_read_exclusive();
  } else if (!(b_.loading | b_.fetching).empty()) {
    request_read();
  }
}

bool Transition::is_wanted_exclusive() const {
  return b_.prefetching || std::any_of(node_.processors.begin(), node_.processors.end(), [&](const Processor& p) {
           return p.queue.find(context_.block) != p.queue.size();
         });
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

// --- The directory (section 2.1) -------------------------------------------------------------------------------------

bool Transition::directory_message(NodeId from, MessageKind kind) {
  const bool is_sharer = b_.sharers.contains(from);
  switch (kind) {
    case MessageKind::kRead:
      return !is_sharer && on_read_request(from);
    case MessageKind::kReadExclusive:
      return !is_sharer && on_read_exclusive_request(from);
    default:
      // An upgrade whose sender's copy was invalidated while it was on the way is a read-exclusive.
      return is_sharer ? on_upgrade_request(from) : on_read_exclusive_request(from);
  }
}

bool Transition::on_read_request(NodeId from) {
  const NodeId supplier = this->supplier();
  b_.sharers.insert(from);
  to(supplier, {.kind = MessageKind::kForwardRead, .requester = from});
  return true;
}

bool Transition::on_read_exclusive_request(NodeId from) {
  const NodeId supplier = this->supplier();
  const NodeSet to_invalidate = b_.sharers - NodeSet::of(supplier);
  to(supplier, {.kind = MessageKind::kForwardReadExclusive,
                .requester = from,
                .acks = static_cast<uint16_t>(to_invalidate.size())});
  make_owner(from, to_invalidate);
  return true;
}

bool Transition::on_upgrade_request(NodeId from) {
  const NodeSet to_invalidate = b_.sharers - NodeSet::of(from);
  to(from, {.kind = MessageKind::kUpgraded, .requester = from, .acks = static_cast<uint16_t>(to_invalidate.size())});
  make_owner(from, to_invalidate);
  return true;
}

void Transition::make_owner(NodeId requester, NodeSet to_invalidate) {
  b_.owner = requester;
  b_.sharers = NodeSet::of(requester);
  to_invalidate.for_each([&](NodeId n) { to(n, {.kind = MessageKind::kInvalidate, .requester = requester}); });
}

NodeId Transition::supplier() const {
  return b_.sharers.contains(context_.self) && b_.is_readable() ? context_.self : b_.owner;
}

}  // namespace

// --- The interface ---------------------------------------------------------------------------------------------------

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
  const Outcome outcome = t.store(processor, Transition::Queued::kStore);
  t.process_self_messages();
  return outcome;
}

Outcome on_request_hazard(Block& block, const Context& context, Node& node, unsigned processor, Actions& actions) {
  Transition t(block, context, node, actions);
  const Outcome outcome = t.store(processor, Transition::Queued::kHazard);
  t.process_self_messages();
  return outcome;
}

bool on_hazard_published(Block& block, unsigned processor) {
  MG_CHECK(block.granted.contains(processor), processor);
  block.granted.erase(processor);
  return block.granted.empty() && (!block.forwarded_reads.empty() || block.has_forwarded_exclusive);
}

bool must_wait(const Processor& processor) {
  return processor.queue.has_waiting();
}

void on_prefetch_exclusive(Block& block, const Context& context, Node& node, Actions& actions) {
  Transition t(block, context, node, actions);
  t.prefetch_exclusive();
  t.process_self_messages();
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
