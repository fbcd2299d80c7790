// These are the transitions of placed pages: one page at one node, and its directory entry at the home.
//
// This is [Bolosky]'s Figure 3.3, for a request of node N. Each row is what the home does when the policy has answered; "own" is
// what N itself has, "other" what other nodes have. The entry is in the state of the last column when every node that was told
// something has answered, and then N is granted the page.
//
//   state            request  policy   what happens                                      then             function
//   ---------------  -------  -------  ------------------------------------------------  ---------------  ------------------
//   read-only        read     LOCAL    copy to N                                         read-only        read_only_local
//                    write    LOCAL    flush other; copy to N, unless N has one          local-writable
//                    any      GLOBAL   flush all; N uses global memory                   global-writable  read_only_global
//   local-writable,  read     LOCAL    sync other; copy to N                             read-only        writable_local
//   by another node  write    LOCAL    flush other; copy to N                            local-writable
//                    any      GLOBAL   flush other; N uses global memory                 global-writable  writable_global
//   local-writable,  any      LOCAL    mapped again                                      local-writable   on_fault
//   by N             any      GLOBAL   flush own (a pin: the policy is not asked)        global-writable  begin_pin
//   global-writable  read     LOCAL    unmap all; copy to N                              read-only        global_local
//                    write    LOCAL    unmap all; copy to N                              local-writable
//                    any      GLOBAL   N uses global memory                              global-writable  global_global
//
// sync: the node that may write gives the page back to global memory, and keeps a copy to read. flush: the nodes drop their
// copies; one that may write gives the page back before. unmap: the nodes stop using global memory. "Copy" fills N's frame with
// zeros, and copies nothing, while nobody has written the page: the home's frame need not be filled with zeros first (lazy zero
// fill, section 3.1.3).
//
// This is the table of what else the home does, one at a time; requests that come meanwhile wait.
//
//   work             when                                  what happens                                      function
//   ---------------  ------------------------------------  ------------------------------------------------  ------------------
//   pin              pinned to global memory, elsewhere    flush all; global-writable, used by nobody        begin_pin
//   thaw             global-writable, pinned to local      unmap all; the nodes' next faults ask the policy  begin_thaw
//                    memory, or the policy reconsiders
//   discard          any                                   drop all, unmap all; new                          begin_discard
//
// This is the table of a page at a node. "Order": a sync, flush, drop or unmap.
//
//   event            state                     what happens                                              function
//   ---------------  ------------------------  --------------------------------------------------------  ------------------
//   fault            allows the access         mapped again                                              on_fault
//                    else, no request          waits; a request to the home
//                    else                      waits for the grant, and then for a request of its own
//   reference        allows it, no order       the page stays until the reference is over                on_reference
//                    else                      as a fault; one that waits for what follows the order
//                                              may be granted what the order leaves it
//   grant            has a request             take or zero-fill; mapped; threads that waited for so     on_grant
//                                              much are granted the page, and the hold begins; another
//                                              request, if threads wait to write what was granted to read
//   order            held                      waits for the end of the hold                             on_order
//                    not held                  rights are taken, then it is answered                     answer_order
//   hold over        any                       an order that waits is answered                           on_hold_over
//
// No correct node sends what is not in the tables: on_message returns false then.

#include "coherence/placement/transitions.h"

#include <array>

#include "base/error.h"

namespace multigrain::placement {

const char* name(MessageKind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(MessageKind::kKindCount)> kNames = {
      "READ_REQUEST", "WRITE_REQUEST", "SYNC",     "FLUSH", "DROP",     "UNMAP",
      "SYNCED",       "FLUSHED",       "UNMAPPED", "GRANT", "DISCARDED"};
  return kind < MessageKind::kKindCount ? kNames[static_cast<size_t>(kind)] : "?";
}

namespace {

// This makes one transition: the event itself, and all messages of the home to itself that follow from it.
class Transition {
 public:
  Transition(Page& page, const Context& context, Actions& actions)
      : p_(page), d_(page.directory), context_(context), actions_(actions) {}

  // Events.
  FaultOutcome fault(Access access);
  FaultOutcome reference(Access access);
  bool message(NodeId from, const PageMessage& m);
  void hold_over();
  void decision(Location location);
  void pin(Pin pin);
  void thaw();
  bool discard(NodeId requester);
  // Handles the home's messages to itself, and has the home begin what it has to do next.
  void settle();

 private:
  // --- A page at a node
  bool on_grant(const PageMessage& m);
  bool on_order(MessageKind order);
  void answer_order();
  void grant_threads();
  FaultOutcome wait_for(Access access);
  void request(Access access);
  void map();

  // --- The directory: requests, and the rows of Figure 3.3
  bool on_request(NodeId from, Access access);
  bool begin_next_work();
  void begin_request();
  void read_only_local();
  void read_only_global();
  void writable_local();
  void writable_global();
  void global_local();
  void global_global();
  void begin_pin();
  void begin_thaw();
  void begin_discard();

  // --- Orders, their answers, and the end of a work
  void order(NodeSet nodes, MessageKind what);
  bool on_answer(NodeId from, const PageMessage& m);
  void complete();
  void complete_request();
  void complete_discard();
  [[nodiscard]] PageMessage grant_of(NodeId node, State right, bool has_copy) const;
  [[nodiscard]] NodeId next_requester() const;

  void to(NodeId node, const PageMessage& m);
  void act(Verb verb) { actions_.push({.verb = verb, .node = {}, .message = {}}); }

  // At a time a home sends itself at most a request, an order, the order's answer, and a grant.
  static constexpr size_t kSelfCapacity = 8;

  Page& p_;
  Directory& d_;
  const Context& context_;
  Actions& actions_;
  std::array<PageMessage, kSelfCapacity> self_{};
  size_t self_head_ = 0;
  size_t self_tail_ = 0;
};

void Transition::to(NodeId node, const PageMessage& m) {
  if (node == context_.self) {
    MG_CHECK(self_tail_ < kSelfCapacity && m.content != Content::kPage);
    self_[self_tail_++] = m;
    return;
  }
  actions_.push({.verb = m.content == Content::kPage ? Verb::kSendPage : Verb::kSend, .node = node, .message = m});
}

// What the home has granted itself is done before it begins the next work, so that the question to the policy comes last.
void Transition::settle() {
  do {
    while (self_head_ != self_tail_) {
      const PageMessage m = self_[self_head_++];
      MG_CHECK(message(context_.self, m), static_cast<uint64_t>(m.kind));
    }
    self_head_ = self_tail_ = 0;
  } while (begin_next_work());
}

bool Transition::message(NodeId from, const PageMessage& m) {
  const bool is_from_home = from == context_.home;
  switch (m.kind) {
    case MessageKind::kReadRequest:
      return context_.is_home() && on_request(from, Access::kRead);
    case MessageKind::kWriteRequest:
      return context_.is_home() && on_request(from, Access::kWrite);
    case MessageKind::kSync:
    case MessageKind::kFlush:
    case MessageKind::kDrop:
    case MessageKind::kUnmap:
      return is_from_home && on_order(m.kind);
    case MessageKind::kSynced:
    case MessageKind::kFlushed:
    case MessageKind::kUnmapped:
      return context_.is_home() && on_answer(from, m);
    case MessageKind::kGrant:
      return is_from_home && on_grant(m);
    default:
      return false;
  }
}

// --- A page at a node ------------------------------------------------------------------------------------------------

// If an order waits for the end of the hold, the thread has only what is left of it, and must not make it longer.
FaultOutcome Transition::fault(Access access) {
  if (p_.allows(access)) {
    if (!p_.has_order) p_.held = true;
    map();
    return FaultOutcome::kResolved;
  }
  return wait_for(access);
}

FaultOutcome Transition::reference(Access access) {
  if (!p_.allows(access) || p_.has_order) return wait_for(access);
  ++p_.returning;
  p_.held = true;
  return FaultOutcome::kResolved;
}

FaultOutcome Transition::wait_for(Access access) {
  ++(access == Access::kRead ? p_.waiting_to_read : p_.waiting_to_write);
  if (!p_.has_request) request(access);
  return FaultOutcome::kWait;
}

void Transition::request(Access access) {
  p_.has_request = true;
  to(context_.home, {.kind = access == Access::kRead ? MessageKind::kReadRequest : MessageKind::kWriteRequest});
}

void Transition::map() {
  act(p_.state == State::kRead ? Verb::kMapRead : p_.state == State::kWrite ? Verb::kMapWrite : Verb::kMapGlobal);
}

// (P3) While an order waits here the home grants nothing.
bool Transition::on_grant(const PageMessage& m) {
  if (!p_.has_request || p_.has_order || m.right == State::kNone) return false;
  // What the node has already, only the right to write can be added to. A reference that has waited behind a sync is granted the
  // copy that the node has kept.
  if (p_.state != State::kNone && (p_.state != State::kRead || m.right == State::kGlobal)) return false;
  const bool uses_own_frame = m.right != State::kGlobal && !context_.is_home();
  if ((m.content == Content::kNone) == (uses_own_frame && p_.state == State::kNone)) return false;
  if (m.content == Content::kPage) act(Verb::kTakePage);
  if (m.content == Content::kZeros) act(Verb::kFillZeros);
  p_.state = m.right;
  p_.has_request = false;
  map();
  grant_threads();
  return true;
}

void Transition::grant_threads() {
  const auto grant = [this](uint16_t& waiting, Verb wake) {
    if (waiting == 0) return;
    p_.returning = static_cast<uint16_t>(p_.returning + waiting);
    waiting = 0;
    p_.held = true;
    act(wake);
  };
  grant(p_.waiting_to_read, Verb::kWakeReaders);
  if (p_.allows(Access::kWrite))
    grant(p_.waiting_to_write, Verb::kWakeWriters);
  else if (p_.waiting_to_write != 0)
    request(Access::kWrite);
}

bool Transition::on_order(MessageKind order) {
  const bool has_own_copy = p_.state == State::kRead || p_.state == State::kWrite;
  const bool suits = order == MessageKind::kUnmap  ? p_.state == State::kGlobal
                     : order == MessageKind::kSync ? p_.state == State::kWrite
                                                   : has_own_copy;
  if (p_.has_order || !suits) return false;
  p_.order = order;
  p_.has_order = true;
  if (p_.waits_for_hold())
    act(Verb::kAwaitHold);
  else
    answer_order();
  return true;
}

// (P4) Rights are taken before the page is sent, or the answer: no thread of this node may write while the page is copied, nor
// read what the next writer overwrites.
void Transition::answer_order() {
  const bool gives_back = p_.state == State::kWrite && p_.order != MessageKind::kDrop && !context_.is_home();
  const bool keeps_copy = p_.order == MessageKind::kSync;
  act(keeps_copy ? Verb::kRevokeWrite : Verb::kRevoke);
  p_.state = keeps_copy ? State::kRead : State::kNone;
  p_.has_order = false;
  to(context_.home, {.kind = keeps_copy                        ? MessageKind::kSynced
                             : p_.order == MessageKind::kUnmap ? MessageKind::kUnmapped
                                                               : MessageKind::kFlushed,
                     .content = gives_back ? Content::kPage : Content::kNone});
}

void Transition::hold_over() {
  MG_CHECK(p_.held && p_.returning == 0, p_.returning);
  p_.held = false;
  if (p_.has_order) answer_order();
}

// --- The directory: requests -----------------------------------------------------------------------------------------

bool Transition::on_request(NodeId from, Access access) {
  const bool is_served = (d_.work == Work::kDecide || d_.work == Work::kServe) && d_.requester == from;
  if (is_served || d_.readers.contains(from) || d_.writers.contains(from)) return false;
  // A node asks only for more than it has.
  const bool has_it = d_.placement != Placement::kReadOnly || access == Access::kRead;
  if (has_it && d_.holders.contains(from) && d_.work == Work::kNone) return false;
  (access == Access::kRead ? d_.readers : d_.writers).insert(from);
  return true;
}

// Returns whether the home has begun anything. Requests are served in the order of the nodes' numbers, from `turn` on, so that
// none is overtaken by two of the same node.
bool Transition::begin_next_work() {
  if (d_.work != Work::kNone) return false;
  if (!d_.discarders.empty())
    begin_discard();
  else if (d_.pin == Pin::kGlobal && d_.placement != Placement::kGlobalWritable && !d_.holders.empty())
    begin_pin();
  else if (d_.has_to_thaw)
    begin_thaw();
  else if (!(d_.readers | d_.writers).empty())
    begin_request();
  else
    return false;
  return true;
}

NodeId Transition::next_requester() const {
  const NodeSet all = d_.readers | d_.writers;
  const NodeSet from_turn_on = NodeSet::of_bits(all.bits() & ~uint64_t{0} << d_.turn);
  return from_turn_on.empty() ? all.first() : from_turn_on.first();
}

void Transition::begin_request() {
  d_.requester = next_requester();
  d_.turn = static_cast<uint16_t>((d_.requester.value + 1) % NodeSet::kCapacity);
  d_.access = d_.readers.contains(d_.requester) ? Access::kRead : Access::kWrite;
  d_.readers.erase(d_.requester);
  d_.writers.erase(d_.requester);
  d_.work = Work::kDecide;
  if (d_.pin == Pin::kNone)
    actions_.push({.verb = Verb::kAskPolicy, .node = d_.requester, .message = {}, .access = d_.access});
  else
    decision(d_.pin == Pin::kLocal ? Location::kLocal : Location::kGlobal);
}

// --- Figure 3.3 ------------------------------------------------------------------------------------------------------

void Transition::decision(Location location) {
  MG_CHECK(d_.work == Work::kDecide);
  d_.work = Work::kServe;
  d_.location = location;
  const bool is_local = location == Location::kLocal;
  switch (d_.placement) {
    case Placement::kReadOnly:
      is_local ? read_only_local() : read_only_global();
      break;
    case Placement::kLocalWritable:
      is_local ? writable_local() : writable_global();
      break;
    case Placement::kGlobalWritable:
      is_local ? global_local() : global_global();
      break;
  }
  if (d_.awaited.empty()) complete();
}

void Transition::read_only_local() {
  if (d_.access == Access::kWrite) order(d_.holders - NodeSet::of(d_.requester), MessageKind::kFlush);
}

// The requester's own copy is flushed as well: when other nodes write global memory, it must not read that copy any more.
void Transition::read_only_global() {
  order(d_.holders, MessageKind::kFlush);
}

void Transition::writable_local() {
  order(d_.holders, d_.access == Access::kRead ? MessageKind::kSync : MessageKind::kFlush);
}

void Transition::writable_global() {
  order(d_.holders, MessageKind::kFlush);
}

void Transition::global_local() {
  order(d_.holders, MessageKind::kUnmap);
}

void Transition::global_global() {}

// --- Other work of the home ------------------------------------------------------------------------------------------

void Transition::begin_pin() {
  d_.work = Work::kPin;
  order(d_.holders, MessageKind::kFlush);
}

void Transition::begin_thaw() {
  d_.has_to_thaw = false;
  const bool stays = d_.placement != Placement::kGlobalWritable || d_.pin == Pin::kGlobal || d_.holders.empty();
  if (stays) return;
  d_.work = Work::kThaw;
  order(d_.holders, MessageKind::kUnmap);
}

void Transition::begin_discard() {
  d_.work = Work::kDiscard;
  order(d_.holders, d_.placement == Placement::kGlobalWritable ? MessageKind::kUnmap : MessageKind::kDrop);
  if (d_.awaited.empty()) complete();
}

void Transition::pin(Pin pin) {
  MG_CHECK(context_.is_home());
  d_.pin = pin;
  if (pin == Pin::kLocal) d_.has_to_thaw = true;
}

void Transition::thaw() {
  MG_CHECK(context_.is_home());
  d_.has_to_thaw = true;
}

bool Transition::discard(NodeId requester) {
  MG_CHECK(context_.is_home());
  if (d_.work == Work::kNone && d_.holders.empty() && !d_.is_written) return true;
  d_.discarders.insert(requester);
  return false;
}

// --- Orders, their answers, and the end of a work --------------------------------------------------------------------

void Transition::order(NodeSet nodes, MessageKind what) {
  d_.awaited = nodes;
  nodes.for_each([&](NodeId node) { to(node, {.kind = what}); });
}

// A node that may write gives the page back, unless it was told to drop it. The home's own answer carries nothing: its frame is
// global memory.
bool Transition::on_answer(NodeId from, const PageMessage& m) {
  if (!d_.awaited.contains(from)) return false;
  const bool is_owner = d_.placement == Placement::kLocalWritable;
  const bool may_keep = d_.work == Work::kServe && d_.location == Location::kLocal && d_.access == Access::kRead;
  const MessageKind expected = d_.placement == Placement::kGlobalWritable ? MessageKind::kUnmapped
                               : is_owner && may_keep                     ? MessageKind::kSynced
                                                                          : MessageKind::kFlushed;
  const bool brings_page = is_owner && d_.work != Work::kDiscard && from != context_.self;
  if (m.kind != expected || (m.content == Content::kPage) != brings_page) return false;
  if (brings_page) act(Verb::kTakePage);
  d_.awaited.erase(from);
  if (d_.awaited.empty()) complete();
  return true;
}

void Transition::complete() {
  switch (d_.work) {
    case Work::kServe:
      complete_request();
      break;
    case Work::kDiscard:
      complete_discard();
      break;
    default:  // a pin or a thaw: the page is in global memory, and nobody uses it
      d_.placement = Placement::kGlobalWritable;
      d_.holders.clear();
      d_.is_written = true;
      break;
  }
  d_.work = Work::kNone;
}

void Transition::complete_request() {
  const NodeId n = d_.requester;
  const bool has_copy = d_.placement == Placement::kReadOnly && d_.holders.contains(n);
  const State right = d_.location == Location::kGlobal ? State::kGlobal
                      : d_.access == Access::kRead     ? State::kRead
                                                       : State::kWrite;
  const PageMessage grant = grant_of(n, right, has_copy);
  // These keep what they have: other readers, a writer that has given the page back, and the others that use global memory.
  const bool are_joined = right == State::kGlobal ? d_.placement == Placement::kGlobalWritable
                                                  : right == State::kRead && d_.placement != Placement::kGlobalWritable;
  if (!are_joined) d_.holders.clear();
  d_.holders.insert(n);
  d_.placement = right == State::kRead    ? Placement::kReadOnly
                 : right == State::kWrite ? Placement::kLocalWritable
                                          : Placement::kGlobalWritable;
  if (right != State::kRead) d_.is_written = true;
  to(n, grant);
}

PageMessage Transition::grant_of(NodeId node, State right, bool has_copy) const {
  const bool needs_nothing = right == State::kGlobal || node == context_.home || has_copy;
  return {.kind = MessageKind::kGrant,
          .content = needs_nothing   ? Content::kNone
                     : d_.is_written ? Content::kPage
                                     : Content::kZeros,
          .right = right};
}

// (P8) The page is as it was at first, but for what is asked of it now and where it is pinned.
void Transition::complete_discard() {
  act(Verb::kFillZeros);
  act(Verb::kForget);
  d_.discarders.for_each(
      [&](NodeId n) { actions_.push({.verb = Verb::kSend, .node = n, .message = {.kind = MessageKind::kDiscarded}}); });
  d_.discarders.clear();
  d_.placement = Placement::kReadOnly;
  d_.holders.clear();
  d_.is_written = false;
}

}  // namespace

// --- The interface ---------------------------------------------------------------------------------------------------

FaultOutcome on_fault(Page& page, const Context& context, Access access, Actions& actions) {
  Transition t(page, context, actions);
  const FaultOutcome outcome = t.fault(access);
  t.settle();
  return outcome;
}

FaultOutcome on_reference(Page& page, const Context& context, Access access, Actions& actions) {
  Transition t(page, context, actions);
  const FaultOutcome outcome = t.reference(access);
  t.settle();
  return outcome;
}

void on_returned(Page& page) {
  MG_CHECK(page.returning != 0);
  --page.returning;
}

void on_hold_over(Page& page, const Context& context, Actions& actions) {
  Transition t(page, context, actions);
  t.hold_over();
  t.settle();
}

bool on_message(Page& page, const Context& context, NodeId from, const PageMessage& message, Actions& actions) {
  Transition t(page, context, actions);
  const bool possible = t.message(from, message);
  if (possible) t.settle();
  return possible;
}

void on_decision(Page& page, const Context& context, Location location, Actions& actions) {
  Transition t(page, context, actions);
  t.decision(location);
  t.settle();
}

void on_pin(Page& page, const Context& context, Pin pin, Actions& actions) {
  Transition t(page, context, actions);
  t.pin(pin);
  t.settle();
}

void on_thaw(Page& page, const Context& context, Actions& actions) {
  Transition t(page, context, actions);
  t.thaw();
  t.settle();
}

bool on_discard(Page& page, const Context& context, NodeId requester, Actions& actions) {
  Transition t(page, context, actions);
  const bool is_new = t.discard(requester);
  t.settle();
  return is_new;
}

}  // namespace multigrain::placement
