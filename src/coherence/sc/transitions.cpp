// These are the transitions of sequentially consistent pages: one page at one node, and its directory entry at the
// home.
//
// This is the table of the events of the node's threads. `pending` is the request that is out; "to go": an invalidation
// or a forwarded write waits for the end of the hold.
//
//   event            state, pending            what happens                                              function
//   ---------------  ------------------------  --------------------------------------------------------  -------------------
//   read fault       readable                  mapped                                                    read_fault_on_readable
//                    invalid, none             waits; read to the home; if the thread is expected to     read_fault_on_invalid
//                                              write next, write to the home
//                    invalid, any              waits for the reply                                       read_fault_on_pending
//   write fault      exclusive, none           mapped                                                    write_fault_on_exclusive
//                    shared, none              waits; write to the home, unless the copy is to go        write_fault_on_shared
//                    invalid, none             waits; write to the home                                  write_fault_on_invalid
//                    any, any                  waits for the reply, and then for a request of its own    write_fault_on_pending
//   prefetch         invalid, none             read to the home; to write: write to the home             prefetch
//                    shared, none, no hold     to write: write to the home, unless the copy is to go
//   discard          exclusive, none, no hold  cleared (at the home; another node asks it to)            discard, on_idle
//                    shared, invalid, none     write to the home, unless the copy is to go
//                    else                      waits for the reply, for completion or the hold's end
//
// This is the table of the events that come by a message, when no request is out any more, or with time.
//
//   event            state, pending            what happens                                              function
//   ---------------  ------------------------  --------------------------------------------------------  -------------------
//   data             invalid, read             take; shared; write to the home if a thread waits to      on_data
//                                              write, else readers are granted and the hold begins
//   exclusive data   invalid, write            take; exclusive, replied                                  on_exclusive_data
//   upgraded         shared, write             exclusive, replied                                        on_upgraded
//   invalidated      any, write                one acknowledgement less; it may come before the reply    on_invalidated
//   (the last one)   exclusive, replied        complete: threads are granted, and the hold begins        on_complete
//   forwarded read   shared, not to go         data to the requester                                     on_forwarded_read,
//                    exclusive, none, no hold  to shared, data to the requester                          serve
//                    else                      waits for the reply, for completion or the hold's end
//   forwarded write  readable, not replied,    to invalid, exclusive data to the requester               on_forwarded_write,
//                    no hold                                                                             serve
//                    else                      waits for completion, or for the hold's end
//   invalidate       invalid, read             waits for the data, which was ordered before it           on_invalidate
//                    shared, no hold           to invalid, acknowledge
//                    shared, held              waits for the hold's end
//   hold over        any, none                 what waits is served                                      on_hold_over
//   nothing is out   exclusive                 what waits is served, unless the page is held; cleared,   on_idle
//                                              if a discard waits
//                    shared                    the same; else write to the home, if a thread or a
//                                              discard waits
//                    invalid                   write or read to the home, if a thread or a discard
//                                              waits
//
// This is the table of the directory, at the home. It changes when a request arrives, and never waits for anything
// (C4).
//
//   request          requester                 what happens                                              function
//   ---------------  ------------------------  --------------------------------------------------------  -------------------
//   read             has no copy               joins the sharers; forwarded to the supplier              on_read_request
//   write            has no copy               owner and only sharer; forwarded to the supplier, with    write_request_of_
//                                              the number of invalidations; other sharers: invalidate    another
//                    has a copy                owner and only sharer; upgraded, with the number of       write_request_of_
//                                              invalidations; other sharers: invalidate                  sharer
//
// The supplier is the home if it has a copy, which saves a hop; else the owner. No correct node sends what is not in
// the tables: on_message returns false then.

#include "coherence/sc/transitions.h"

#include <array>

#include "base/error.h"

namespace multigrain::sc {

const char* name(MessageKind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(MessageKind::kKindCount)> kNames = {
      "READ", "WRITE",          "FORWARD_READ", "FORWARD_WRITE", "INVALIDATE",
      "DATA", "DATA_EXCLUSIVE", "UPGRADED",     "INVALIDATED",   "DISCARDED"};
  return kind < MessageKind::kKindCount ? kNames[static_cast<size_t>(kind)] : "?";
}

namespace {

// At first the home has the only copy.
void begin(Page& page, const Context& context) {
  if (page.begun) return;
  page.begun = true;
  page.owner = context.home;
  page.sharers = NodeSet::of(context.home);
  page.state = context.is_home() ? State::kExclusive : State::kInvalid;
}

// This makes one transition: the event itself, and all messages of the home to itself that follow from it.
class Transition {
 public:
  Transition(Page& page, const Context& context, Actions& actions) : p_(page), context_(context), actions_(actions) {
    begin(page, context);
  }

  // Events.
  FaultOutcome read_fault(Pending wanted);
  FaultOutcome write_fault();
  void prefetch(Access access);
  bool discard(NodeId requester);
  bool message(NodeId from, const PageMessage& m);
  void hold_over();
  // Handles the home's messages to itself.
  void process_self_messages();

 private:
  // --- Threads of the node
  FaultOutcome read_fault_on_readable();
  FaultOutcome read_fault_on_invalid(Pending wanted);
  FaultOutcome read_fault_on_pending();
  FaultOutcome write_fault_on_exclusive();
  FaultOutcome write_fault_on_shared();
  FaultOutcome write_fault_on_invalid();
  FaultOutcome write_fault_on_pending();

  // --- Messages, and the moment when no request is out any more
  bool requester_message(NodeId from, const PageMessage& m);
  bool on_data();
  bool on_exclusive_data(const PageMessage& m);
  bool on_upgraded(const PageMessage& m);
  bool on_invalidated();
  void on_complete();
  bool on_forwarded_read(NodeId requester);
  bool on_forwarded_write(const PageMessage& m);
  bool on_invalidate(NodeId requester);
  void on_idle();

  // --- The directory
  bool directory_message(NodeId from, MessageKind kind);
  bool on_read_request(NodeId from);
  bool write_request_of_another(NodeId from);
  bool write_request_of_sharer(NodeId from);

  // --- Steps that the functions above share
  void request(Pending what);
  bool exclusive_reply(uint16_t acks);
  void grant_readers();
  void grant_writers();
  void advance() { has_no_request() ? on_idle() : serve(); }
  void serve();
  void supply_readers();
  void supply_writer();
  void invalidate();
  void clear();
  void make_owner(NodeId requester, NodeSet to_invalidate);
  [[nodiscard]] NodeId supplier() const;
  [[nodiscard]] bool has_no_request() const { return p_.pending == Pending::kNone; }
  [[nodiscard]] bool wants_only_copy() const { return p_.waiting_to_write != 0 || !p_.discarders.empty(); }
  [[nodiscard]] bool can_be_forwarded_to() const;

  void to(NodeId node, const PageMessage& m, Verb verb = Verb::kSend);
  void act(Verb verb) { actions_.push({.verb = verb, .node = {}, .message = {}}); }

  // A home sends itself at most a request, its forwarding, and an invalidation.
  static constexpr size_t kSelfCapacity = 8;

  Page& p_;
  const Context& context_;
  Actions& actions_;
  std::array<PageMessage, kSelfCapacity> self_{};
  size_t self_head_ = 0;
  size_t self_tail_ = 0;
};

void Transition::to(NodeId node, const PageMessage& m, Verb verb) {
  if (node == context_.self) {
    MG_CHECK(self_tail_ < kSelfCapacity && verb == Verb::kSend);
    self_[self_tail_++] = m;
    return;
  }
  actions_.push({.verb = verb, .node = node, .message = m});
}

void Transition::process_self_messages() {
  while (self_head_ != self_tail_) {
    const PageMessage m = self_[self_head_++];
    MG_CHECK(message(context_.self, m), static_cast<uint64_t>(m.kind));
  }
}

bool Transition::message(NodeId from, const PageMessage& m) {
  if (is_request(m.kind)) return context_.is_home() && directory_message(from, m.kind);
  return requester_message(from, m);
}

// --- Read faults -----------------------------------------------------------------------------------------------------

FaultOutcome Transition::read_fault(Pending wanted) {
  if (p_.is_readable()) return read_fault_on_readable();
  return has_no_request() ? read_fault_on_invalid(wanted) : read_fault_on_pending();
}

// If the copy is to go, the thread has only what is left of the hold, and must not make it longer.
FaultOutcome Transition::read_fault_on_readable() {
  if (has_no_request() && !p_.is_to_go()) p_.held = true;
  act(p_.is_writable() ? Verb::kMapWrite : Verb::kMapRead);
  return FaultOutcome::kResolved;
}

FaultOutcome Transition::read_fault_on_invalid(Pending wanted) {
  ++p_.waiting_to_read;
  request(wanted);
  return FaultOutcome::kWait;
}

FaultOutcome Transition::read_fault_on_pending() {
  ++p_.waiting_to_read;
  return FaultOutcome::kWait;
}

// --- Write faults ----------------------------------------------------------------------------------------------------

FaultOutcome Transition::write_fault() {
  if (!has_no_request()) return write_fault_on_pending();
  switch (p_.state) {
    case State::kExclusive:
      return write_fault_on_exclusive();
    case State::kShared:
      return write_fault_on_shared();
    case State::kInvalid:
      return write_fault_on_invalid();
  }
  panic("invariant broken: a page in a state that is none", static_cast<uint64_t>(p_.state));
}

FaultOutcome Transition::write_fault_on_exclusive() {
  if (!p_.is_to_go()) p_.held = true;
  act(Verb::kMapWrite);
  return FaultOutcome::kResolved;
}

FaultOutcome Transition::write_fault_on_shared() {
  ++p_.waiting_to_write;
  if (!p_.is_to_go()) request(Pending::kWrite);
  return FaultOutcome::kWait;
}

FaultOutcome Transition::write_fault_on_invalid() {
  ++p_.waiting_to_write;
  request(Pending::kWrite);
  return FaultOutcome::kWait;
}

FaultOutcome Transition::write_fault_on_pending() {
  ++p_.waiting_to_write;
  return FaultOutcome::kWait;
}

// A page that is held is in use. The request would end the hold, although no thread waits for more than it has. That is
// not wrong (C6), but the threads would fault again.
void Transition::prefetch(Access access) {
  if (!has_no_request() || p_.held || p_.is_to_go()) return;
  if (access == Access::kWrite && p_.state != State::kExclusive)
    request(Pending::kWrite);
  else if (p_.state == State::kInvalid)
    request(access == Access::kRead ? Pending::kRead : Pending::kWrite);
}

bool Transition::discard(NodeId requester) {
  MG_CHECK(context_.is_home());
  if (has_no_request() && p_.state == State::kExclusive && !p_.held) {
    clear();
    return true;
  }
  p_.discarders.insert(requester);
  if (has_no_request()) on_idle();
  return false;
}

// (C6) Threads that lose a copy while this request is out wait for it, and are granted the page when it is complete.
// Holding a copy meanwhile would mix what the directory has ordered before the request with what it has ordered after
// it.
void Transition::request(Pending what) {
  p_.pending = what;
  p_.held = false;
  to(context_.home,
     {.kind = what == Pending::kRead ? MessageKind::kRead : MessageKind::kWrite, .requester = context_.self});
}

// --- Messages to a requester, or to a node with a copy ---------------------------------------------------------------

bool Transition::requester_message(NodeId from, const PageMessage& m) {
  const bool has_write_request = p_.pending == Pending::kWrite;
  const bool from_home_for_another = from == context_.home && m.requester != context_.self;
  switch (m.kind) {
    case MessageKind::kData:
      return from != context_.self && p_.pending == Pending::kRead && on_data();
    case MessageKind::kDataExclusive:
      return from != context_.self && has_write_request && !p_.replied && p_.state == State::kInvalid &&
             on_exclusive_data(m);
    case MessageKind::kUpgraded:
      return from == context_.home && has_write_request && !p_.replied && p_.state == State::kShared && on_upgraded(m);
    case MessageKind::kInvalidated:
      return from != context_.self && has_write_request && on_invalidated();
    case MessageKind::kForwardRead:
      return from_home_for_another && on_forwarded_read(m.requester);
    case MessageKind::kForwardWrite:
      return from_home_for_another && on_forwarded_write(m);
    case MessageKind::kInvalidate:
      return from_home_for_another && on_invalidate(m.requester);
    default:
      return false;
  }
}

// If a thread waits to write, or a discard waits, readers are granted the page when that request is complete.
bool Transition::on_data() {
  p_.pending = Pending::kNone;
  p_.state = State::kShared;
  act(Verb::kTakePage);
  if (wants_only_copy() && !p_.is_to_go()) {
    request(Pending::kWrite);
    return true;
  }
  act(Verb::kMapRead);
  grant_readers();
  on_idle();
  return true;
}

bool Transition::on_exclusive_data(const PageMessage& m) {
  act(Verb::kTakePage);
  return exclusive_reply(m.acks);
}

bool Transition::on_upgraded(const PageMessage& m) {
  return exclusive_reply(m.acks);
}

// The page becomes exclusive. `acks` is how many acknowledgements there will be in all.
bool Transition::exclusive_reply(uint16_t acks) {
  p_.state = State::kExclusive;
  p_.replied = true;
  p_.acks = static_cast<int16_t>(p_.acks + acks);
  if (p_.acks < 0) return false;
  if (p_.acks == 0) on_complete();
  return true;
}

bool Transition::on_invalidated() {
  if (p_.replied && p_.acks <= 0) return false;
  --p_.acks;
  if (p_.replied && p_.acks == 0) on_complete();
  return true;
}

// The threads of this node that wait come first, so that none is starved; then comes what the directory has ordered
// after the request.
void Transition::on_complete() {
  p_.pending = Pending::kNone;
  p_.replied = false;
  act(Verb::kMapWrite);
  grant_readers();
  grant_writers();
  // Threads that were granted the page before the request, and do not run yet, make the page held as well.
  p_.held = p_.returning != 0;
  on_idle();
}

void Transition::grant_readers() {
  if (p_.waiting_to_read == 0) return;
  p_.returning = static_cast<uint16_t>(p_.returning + p_.waiting_to_read);
  p_.waiting_to_read = 0;
  p_.held = true;
  act(Verb::kWakeReaders);
}

void Transition::grant_writers() {
  if (p_.waiting_to_write == 0) return;
  p_.returning = static_cast<uint16_t>(p_.returning + p_.waiting_to_write);
  p_.waiting_to_write = 0;
  p_.held = true;
  act(Verb::kWakeWriters);
}

// (C4) A request that is forwarded here before the reply of the node's own request was ordered before that, and is
// served from the copy that the node still has. A request that is forwarded later waits for completion. After a
// forwarded write the home forwards everything to the writer's node.
bool Transition::can_be_forwarded_to() const {
  const bool has_or_gets_it = p_.is_readable() || p_.pending == Pending::kWrite;
  return has_or_gets_it && !p_.has_forwarded_write && !p_.has_invalidation;
}

bool Transition::on_forwarded_read(NodeId requester) {
  if (!can_be_forwarded_to() || p_.forwarded_reads.contains(requester)) return false;
  p_.forwarded_reads.insert(requester);
  advance();
  return true;
}

bool Transition::on_forwarded_write(const PageMessage& m) {
  if (!can_be_forwarded_to()) return false;
  p_.has_forwarded_write = true;
  p_.forwarded_write = m.requester;
  p_.forwarded_acks = m.acks;
  advance();
  return true;
}

bool Transition::on_invalidate(NodeId requester) {
  if (p_.has_invalidation || p_.has_forwarded_write || p_.replied) return false;
  if (p_.state != State::kShared && p_.pending != Pending::kRead) return false;
  p_.has_invalidation = true;
  p_.invalidation = requester;
  advance();
  return true;
}

// (C7) No node has another copy, no thread of this node is about to use its own, and no request is out: the page is as
// it was at the beginning.
void Transition::clear() {
  MG_CHECK(p_.returning == 0 && p_.waiting_to_read == 0 && p_.waiting_to_write == 0 && !p_.is_to_go() &&
           p_.forwarded_reads.empty());
  const NodeSet discarders = p_.discarders;
  act(Verb::kRevoke);
  act(Verb::kClear);
  p_ = Page{};
  discarders.for_each([&](NodeId n) {
    actions_.push({.verb = Verb::kSend, .node = n, .message = {.kind = MessageKind::kDiscarded, .requester = n}});
  });
}

// Serves what waits, as far as it may be done now. A forwarded read takes nothing from readers, so it does not wait for
// their hold.
void Transition::serve() {
  if (p_.replied || p_.state == State::kInvalid) return;
  if (!p_.forwarded_reads.empty() && (p_.state == State::kShared || !p_.held)) supply_readers();
  if (p_.waits_for_hold()) {
    act(Verb::kAwaitHold);
    return;
  }
  if (p_.has_forwarded_write) supply_writer();
  if (p_.has_invalidation) invalidate();
}

// Rights are taken before the data is sent: no thread of this node may write while the page is copied.
void Transition::supply_readers() {
  if (p_.state == State::kExclusive) act(Verb::kRevokeWrite);
  p_.state = State::kShared;
  p_.forwarded_reads.for_each([&](NodeId n) { to(n, {.kind = MessageKind::kData, .requester = n}, Verb::kSendPage); });
  p_.forwarded_reads.clear();
}

void Transition::supply_writer() {
  act(Verb::kRevoke);
  p_.state = State::kInvalid;
  p_.has_forwarded_write = false;
  const NodeId writer = p_.forwarded_write;
  to(writer, {.kind = MessageKind::kDataExclusive, .requester = writer, .acks = p_.forwarded_acks}, Verb::kSendPage);
}

// The page must not be readable any more when the requester can act on the acknowledgement.
void Transition::invalidate() {
  act(Verb::kRevoke);
  p_.state = State::kInvalid;
  p_.has_invalidation = false;
  to(p_.invalidation, {.kind = MessageKind::kInvalidated, .requester = p_.invalidation});
}

// --- When no request is out any more ---------------------------------------------------------------------------------

void Transition::hold_over() {
  MG_CHECK(p_.held && p_.returning == 0, p_.returning);
  p_.held = false;
  on_idle();
}

void Transition::on_idle() {
  MG_CHECK(has_no_request());
  serve();
  if (p_.state == State::kInvalid) {
    if (wants_only_copy())
      request(Pending::kWrite);
    else if (p_.waiting_to_read != 0)
      request(Pending::kRead);
  } else if (p_.state == State::kShared) {
    if (wants_only_copy() && !p_.is_to_go()) request(Pending::kWrite);
  } else if (!p_.discarders.empty() && !p_.held) {
    clear();
  }
}

// --- The directory ([Shasta], section 2.1) ---------------------------------------------------------------------------

bool Transition::directory_message(NodeId from, MessageKind kind) {
  const bool is_sharer = p_.sharers.contains(from);
  if (kind == MessageKind::kRead) return !is_sharer && on_read_request(from);
  // A node whose copy was invalidated while its request was on the way is no sharer any more.
  return is_sharer ? write_request_of_sharer(from) : write_request_of_another(from);
}

bool Transition::on_read_request(NodeId from) {
  const NodeId supplier = this->supplier();
  p_.sharers.insert(from);
  to(supplier, {.kind = MessageKind::kForwardRead, .requester = from});
  return true;
}

bool Transition::write_request_of_another(NodeId from) {
  const NodeId supplier = this->supplier();
  const NodeSet to_invalidate = p_.sharers - NodeSet::of(supplier);
  to(supplier,
     {.kind = MessageKind::kForwardWrite, .requester = from, .acks = static_cast<uint16_t>(to_invalidate.size())});
  make_owner(from, to_invalidate);
  return true;
}

bool Transition::write_request_of_sharer(NodeId from) {
  const NodeSet to_invalidate = p_.sharers - NodeSet::of(from);
  to(from, {.kind = MessageKind::kUpgraded, .requester = from, .acks = static_cast<uint16_t>(to_invalidate.size())});
  make_owner(from, to_invalidate);
  return true;
}

void Transition::make_owner(NodeId requester, NodeSet to_invalidate) {
  p_.owner = requester;
  p_.sharers = NodeSet::of(requester);
  to_invalidate.for_each([&](NodeId n) { to(n, {.kind = MessageKind::kInvalidate, .requester = requester}); });
}

NodeId Transition::supplier() const {
  return p_.sharers.contains(context_.self) && p_.is_readable() ? context_.self : p_.owner;
}

}  // namespace

// --- The interface ---------------------------------------------------------------------------------------------------

FaultOutcome on_fault(Page& page, const Context& context, Access access, Actions& actions) {
  Transition t(page, context, actions);
  const FaultOutcome outcome = access == Access::kWrite  ? t.write_fault()
                               : access == Access::kRead ? t.read_fault(Pending::kRead)
                                                         : t.read_fault(Pending::kWrite);
  t.process_self_messages();
  return outcome;
}

void on_prefetch(Page& page, const Context& context, Access access, Actions& actions) {
  Transition t(page, context, actions);
  t.prefetch(access);
  t.process_self_messages();
}

void on_returned(Page& page) {
  MG_CHECK(page.returning != 0);
  --page.returning;
}

void on_hold_over(Page& page, const Context& context, Actions& actions) {
  Transition t(page, context, actions);
  t.hold_over();
  t.process_self_messages();
}

bool on_discard(Page& page, const Context& context, NodeId requester, Actions& actions) {
  if (!page.begun) return true;
  Transition t(page, context, actions);
  const bool is_done = t.discard(requester);
  t.process_self_messages();
  return is_done;
}

bool on_message(Page& page, const Context& context, NodeId from, const PageMessage& message, Actions& actions) {
  Transition t(page, context, actions);
  const bool possible = t.message(from, message);
  if (possible) t.process_self_messages();
  return possible;
}

}  // namespace multigrain::sc
