// These are the transitions of MGS. Numbers are the arcs of [MGS], Figures 21 and 22. Letters are sections of
// docs/internals/mgs.md, which says where the code differs from the figures. Functions are in the order of the tables.
//
// This is the table of Local Client and Remote Client. Faults wait in every phase but idle, which is the page's lock,
// column L of the figure.
//
//  state, phase      event             actions                                        next state           arc
//  ----------------  ----------------  ---------------------------------------------  -------------------  ---------------
//  not idle          fault             wait for a wake                                same                 L
//  INV, idle         read fault        RREQ                                           busy                 5
//  ... one-sided     read fault        read the page by itself                        fetching             (n)
//  fetching          the page is here  map for reading, wake                          READ, idle           (n)
//  fetching          closed            RREQ                                           busy                 (n)
//  fetching          INV               ACK                                            fetching, void       (n)
//  fetching, void    the page is here  RREQ                                           busy                 (n)
//  INV, idle         write fault       WREQ                                           busy                 5
//  READ, idle        read fault        map for reading                                same                 1
//  READ, idle        write fault       twin, WNOTIFY, queue, map for writing          WRITE                2, 15, 8
//  READ, REL is out  write fault       wait for RACK                                  same                 (c)
//  WRITE, idle       read fault        map for reading                                same                 1
//  WRITE, idle       write fault       queue (unless single writer), map for writing  same                 3, 4
//  queued            release           REL; wait for RACK                             REL is out           Release
//  queued, REL out   release           join it                                        same                 (c)
//  not queued        release           -                                              same
//  INV, busy         RDAT              fill the frame, map for reading, wake          READ, idle           6
//  INV, busy         WDAT              fill, twin, queue, map for writing, wake       WRITE, idle          7
//  any               RACK              released, for all that joined; wake if READ    no REL is out        9, 10
//  READ, idle        INV               remove the mappings                            invalidating         16
//  WRITE, idle       INV               remove the mappings                            invalidating         19
//  WRITE, idle       1WINV             remove the mappings                            invalidating         22
//  WRITE, idle       1WGR              leave every queue, drop the twin, ACK1W        single writer        25, 26, 27
//  invalidating      a mapping is gone -                                              same                 11-14, 17...
//  of a read copy    the last is gone  ACK, wake                                      INV, idle            18
//  of a write copy   the last is gone  DIFF, drop the twin, wake                      INV, idle            21
//  of the only one   the last is gone  1WDATA, drop the twin, wake                    INV, idle            24
//  ... at the home, and no WREQ waits  1WDATA, and ask for the page as by RREQ        READ, idle           (k)
//
// This is the table of the Server.
//
//  state             event             actions                                        next state           arc
//  ----------------  ----------------  ---------------------------------------------  -------------------  ---------------
//  READ, WRITE       nodes have read   read_dir + these                               same                 (n)
//  READ, WRITE       RREQ              read_dir + src, RDAT                           same                 28, 30
//  READ, WRITE       WREQ              write_dir + src, WDAT                          WRITE, SWRITE (e)    29, 30
//  SWRITE            RREQ, WREQ        remember it; 1WINV to the writer               REL_IN_PROG          36
//  REL_IN_PROG       RREQ, WREQ        remember it                                    same                 33
//  READ, WRITE       WNOTIFY           src from read_dir to write_dir                 WRITE, SWRITE (e)    29
//  REL_IN_PROG       WNOTIFY           -, if its answer is out: a DIFF, no ACK        same                 33
//  WRITE             REL               several writers: INV to all                    REL_IN_PROG          31
//  WRITE             REL               one writer and readers: INV to them, 1WINV     REL_IN_PROG          31
//  WRITE             REL               one writer, alone: 1WGR                        REL_IN_PROG          31
//  WRITE             REL of the home   it is the one writer, alone: 1WINV to itself   REL_IN_PROG          (o)
//  WRITE             REL               one writer, the home reads: INV, later 1WGR    REL_IN_PROG          (l)
//  REL_IN_PROG       REL               remember it                                    same                 33
//  any other         REL               RACK                                           same                 (b)
//  REL_IN_PROG       ACK               one answer less; the home's own: 1WGR          same                 33, (l)
//  REL_IN_PROG       DIFF              merge it, or keep it if a 1WDATA is awaited    same                 33
//  REL_IN_PROG       1WDATA            take it as home copy, merge the kept diffs     same                 33
//  REL_IN_PROG       the last of them  RACK to rl, RDAT to rd, WDAT to wr             READ, WRITE, SWRITE  34
//  REL_IN_PROG       ACK1W             RACK to rl                                     SWRITE               35
//  REL_IN_PROG       ACK1W             a request waits: 1WINV to the writer           same                 33
//
// (A mapping that is gone: 11 to 14, 17, 20 and 23.) No correct node sends what is not in the tables: on_message()
// returns false then.

#include "coherence/mgs/transitions.h"

#include <optional>

#include "base/error.h"

namespace multigrain::mgs {
namespace {

constexpr bool is_for_server(MessageKind kind) {
  return kind <= MessageKind::kAck1w;
}

// This makes one transition: the event itself, and all messages of the home to itself that follow from it.
class Transition {
 public:
  Transition(Page& page, const PageContext& context, Actions& actions)
      : page_(page), client_(page.client), server_(page.server), context_(context), actions_(actions) {}

  FaultOutcome fault(DomainId domain, Access access);
  bool release(DomainId domain);
  void unmapped(DomainId domain);
  bool message(NodeId from, MessageKind kind);
  void fetched();
  void refused();
  bool readers(const NodeSet& readers);
  // Handles the home's messages to itself.
  void process_self_messages();

 private:
  // --- Local Client and Remote Client.
  void fault_on_inv(DomainId domain, Access access);
  void read_fault_on_mapped(DomainId domain);
  bool write_fault_on_read(DomainId domain);
  void write_fault_on_write(DomainId domain);
  void grant_write(DomainId domain);
  bool client_message(NodeId from, MessageKind kind);
  bool rdat(NodeId from);
  bool wdat(NodeId from);
  bool rack();
  bool inv();
  bool one_writer_inv();
  bool one_writer_grant();
  void receive_page(NodeId from, PageState state);
  void enter_single_writer();
  void start_invalidation(Phase phase);
  void finish_invalidation(std::optional<DomainId> last);
  void read_again(std::optional<DomainId> domain);

  // --- Server.
  bool server_message(NodeId from, MessageKind kind);
  void serve_request(NodeId from, MessageKind kind);
  bool serve_wnotify(NodeId from);
  void serve_release(NodeId from);
  bool serve_answer(NodeId from, MessageKind kind);
  bool serve_ack(NodeId from);
  bool serve_diff(NodeId from);
  bool serve_one_writer_data(NodeId from);
  bool serve_one_writer_ack(NodeId from);
  bool answered(NodeId from);
  void grant_whole_machine_to_home();
  void recall_single_writer();
  void finish_round();

  // --- Messages: those to other nodes become actions; process_self_messages() handles the home's own.
  void to_home(MessageKind kind, Verb verb = Verb::kSend) { to(NodeSet::of(context_.home), kind, verb); }
  void to(NodeSet nodes, MessageKind kind, Verb verb = Verb::kSend);
  void act(Verb verb, DomainId domain = {}) {
    actions_.push({.verb = verb, .domain = domain, .nodes = {}, .domains = {}});
  }

  // A transition makes few messages of the home to itself: at most RACK, RDAT or WDAT, INV or 1WGR and their answers.
  static constexpr size_t kSelfCapacity = 8;

  const Page& page_;
  Client& client_;
  Server& server_;
  const PageContext& context_;
  Actions& actions_;
  std::array<MessageKind, kSelfCapacity> self_{};
  size_t self_head_ = 0;
  size_t self_tail_ = 0;
};

void Transition::to(NodeSet nodes, MessageKind kind, Verb verb) {
  if (nodes.contains(context_.self)) {
    MG_CHECK(self_tail_ < kSelfCapacity);
    self_[self_tail_++] = kind;
    nodes.erase(context_.self);
  }
  if (!nodes.empty()) actions_.push({.verb = verb, .kind = kind, .domain = {}, .nodes = nodes, .domains = {}});
}

void Transition::process_self_messages() {
  while (self_head_ != self_tail_) {
    const MessageKind kind = self_[self_head_++];
    MG_CHECK(message(context_.self, kind), static_cast<uint64_t>(kind));
  }
}

bool Transition::message(NodeId from, MessageKind kind) {
  if (is_for_server(kind)) return context_.is_home() && server_message(from, kind);
  return from == context_.home && client_message(from, kind);
}

// --- Local Client -----------------------------------------------------------------------------------------------

FaultOutcome Transition::fault(DomainId domain, Access access) {
  // The page's lock of Figure 22 is held from the request to the data and during an invalidation; kWait is its queue.
  if (client_.phase != Phase::kIdle) return FaultOutcome::kWait;

  const bool is_read = access == Access::kRead;
  switch (client_.state) {
    case PageState::kInv:
      fault_on_inv(domain, access);
      break;
    case PageState::kRead:
      if (is_read)
        read_fault_on_mapped(domain);
      else if (!write_fault_on_read(domain))
        return FaultOutcome::kWait;
      break;
    case PageState::kWrite:
      if (is_read)
        read_fault_on_mapped(domain);
      else
        write_fault_on_write(domain);
      break;
  }
  process_self_messages();
  return client_.phase == Phase::kIdle && client_.mapped.contains(domain) ? FaultOutcome::kResolved
                                                                          : FaultOutcome::kWait;
}

void Transition::fault_on_inv(DomainId domain, Access access) {  // 5
  client_.requester = domain;
  if (access == Access::kRead && context_.reads_one_sided && !context_.is_home()) {
    client_.phase = Phase::kFetching;
    act(Verb::kFetch);
    return;
  }
  client_.phase = access == Access::kRead ? Phase::kBusyRead : Phase::kBusyWrite;
  to_home(access == Access::kRead ? MessageKind::kRreq : MessageKind::kWreq);
}

// The home has this node among its readers since the node added its bit, so an INV that was due has come, or will come.
void Transition::fetched() {
  MG_CHECK(client_.phase == Phase::kFetching);
  if (client_.fetch_is_void) {
    client_.fetch_is_void = false;
    refused();
    return;
  }
  client_.phase = Phase::kIdle;
  client_.state = PageState::kRead;
  client_.mapped.insert(client_.requester);
  act(Verb::kMapRead, client_.requester);
  act(Verb::kWake);
}

void Transition::refused() {
  MG_CHECK(client_.phase == Phase::kFetching && !client_.fetch_is_void);
  client_.phase = Phase::kBusyRead;
  to_home(MessageKind::kRreq);
}

void Transition::read_fault_on_mapped(DomainId domain) {  // 1
  client_.mapped.insert(domain);
  act(Verb::kMapRead, domain);
}

// 2, 15, 8. The home hears of an upgrade afterwards (WNOTIFY), except of its own: until the home copy's server knows
// that the home itself writes, it might let a whole page (1WDATA) overwrite those writes. Returns false if the fault
// must wait for RACK: an upgrade asks no node, so it could overtake the answer to a REL; see release().
bool Transition::write_fault_on_read(DomainId domain) {
  if (client_.release_pending) return false;
  client_.state = PageState::kWrite;
  if (context_.is_home()) {
    MG_CHECK(serve_wnotify(context_.self));
  } else {
    act(Verb::kMakeTwin);
    to_home(MessageKind::kWnotify);
  }
  client_.mapped.insert(domain);
  grant_write(domain);
  return true;
}

void Transition::write_fault_on_write(DomainId domain) {  // 3, 4
  client_.mapped.insert(domain);
  grant_write(domain);
}

// Queues the page before it is mapped: as soon as the mapping is there, another processor of the domain writes through
// it, and that processor's release must find the page.
void Transition::grant_write(DomainId domain) {
  if (!client_.single_writer && !client_.queued.contains(domain)) {
    client_.queued.insert(domain);
    act(Verb::kQueue, domain);
  }
  act(Verb::kMapWrite, domain);
}

bool Transition::release(DomainId domain) {
  if (!client_.queued.contains(domain)) return false;  // a single-writer grant removed it
  client_.queued.erase(domain);
  client_.releasing.insert(domain);
  if (!client_.release_pending) {
    client_.release_pending = true;
    to_home(MessageKind::kRel);
  }
  // Otherwise it joins the release that is out. The round of that release takes what this domain wrote as well: the
  // page cannot have become writable again since, as the home answers the release before any later request, and an
  // upgrade waits for that answer.
  process_self_messages();
  return true;
}

bool Transition::client_message(NodeId from, MessageKind kind) {
  switch (kind) {
    case MessageKind::kRdat:
      return rdat(from);
    case MessageKind::kWdat:
      return wdat(from);
    case MessageKind::kRack:
      return rack();
    case MessageKind::kInv:
      return inv();
    case MessageKind::k1winv:
      return one_writer_inv();
    case MessageKind::k1wgr:
      return one_writer_grant();
    default:
      return false;
  }
}

bool Transition::rdat(NodeId from) {  // 6
  if (client_.phase != Phase::kBusyRead) return false;
  receive_page(from, PageState::kRead);
  return true;
}

bool Transition::wdat(NodeId from) {  // 7
  if (client_.phase != Phase::kBusyWrite) return false;
  receive_page(from, PageState::kWrite);
  return true;
}

void Transition::receive_page(NodeId from, PageState state) {
  client_.phase = Phase::kIdle;
  client_.state = state;
  client_.mapped.insert(client_.requester);
  // The frame must be filled before a processor is given access to it.
  if (from != context_.self) act(Verb::kTakePage);
  if (state == PageState::kRead) {
    act(Verb::kMapRead, client_.requester);
  } else {
    if (!context_.is_home()) act(Verb::kMakeTwin);
    if (context_.is_home() && server_.state == ServerState::kSwrite) client_.single_writer = true;
    grant_write(client_.requester);
  }
  act(Verb::kWake);
}

bool Transition::rack() {  // 9, 10
  if (!client_.release_pending) return false;
  client_.release_pending = false;
  actions_.push({.verb = Verb::kReleased, .domain = {}, .nodes = {}, .domains = client_.releasing});
  client_.releasing.clear();
  if (client_.state == PageState::kRead) act(Verb::kWake);  // an upgrade may wait
  return true;
}

// --- Remote Client ----------------------------------------------------------------------------------------------

bool Transition::inv() {  // 16, 19
  // What the node is reading must not be used. Nothing is mapped, so the answer need not wait for the end of that. After
  // it the node asks the home, so it is not voided again.
  if (client_.phase == Phase::kFetching) {
    if (client_.fetch_is_void) return false;
    client_.fetch_is_void = true;
    to_home(MessageKind::kAck);
    return true;
  }
  if (client_.phase != Phase::kIdle || client_.state == PageState::kInv || client_.single_writer) return false;
  start_invalidation(client_.state == PageState::kRead ? Phase::kReadInvInProgress : Phase::kWriteInvInProgress);
  return true;
}

bool Transition::one_writer_inv() {  // 22
  if (client_.phase != Phase::kIdle || client_.state != PageState::kWrite) return false;
  start_invalidation(Phase::k1wInvInProgress);
  return true;
}

bool Transition::one_writer_grant() {  // 25, 26, 27
  if (client_.phase != Phase::kIdle || client_.state != PageState::kWrite || client_.single_writer) return false;
  enter_single_writer();
  to_home(MessageKind::kAck1w);
  return true;
}

// P2INV: the page leaves every domain's queue. The queues of a node are ordinary memory guarded by the page's lock, so
// the figure's interrupts and acknowledgements (P2INV, P2INV_ACK) become clearing the set. A queue may still list the
// page, and release() ignores it.
void Transition::enter_single_writer() {
  client_.single_writer = true;
  client_.queued.clear();
  if (!context_.is_home()) act(Verb::kDropTwin);
}

void Transition::start_invalidation(Phase phase) {
  client_.phase = phase;
  if (client_.mapped.empty()) {
    finish_invalidation(std::nullopt);
    return;
  }
  client_.mapped.for_each([this](DomainId domain) { act(Verb::kUnmap, domain); });
}

void Transition::unmapped(DomainId domain) {  // 11 to 14, 17, 20, 23
  MG_CHECK(client_.mapped.contains(domain) && client_.phase >= Phase::kReadInvInProgress);
  client_.mapped.erase(domain);
  if (client_.mapped.empty()) finish_invalidation(domain);
  process_self_messages();
}

// No processor can write the local copy any more, so a diff is exact now. The page stays in the queues of the domains
// that have it: what they wrote is on its way home, but other nodes may still hold copies without it until the round
// ends.
void Transition::finish_invalidation(std::optional<DomainId> last) {
  const Phase phase = client_.phase;
  const bool will_keep_read_right = mgs::will_keep_read_right(page_, context_);
  client_.phase = Phase::kIdle;
  client_.state = PageState::kInv;
  switch (phase) {
    case Phase::kReadInvInProgress:  // 18
      to_home(MessageKind::kAck);
      break;
    case Phase::kWriteInvInProgress:  // 21
      to_home(MessageKind::kDiff, Verb::kSendDiff);
      if (!context_.is_home()) act(Verb::kDropTwin);
      break;
    case Phase::k1wInvInProgress:  // 24
      to_home(MessageKind::k1wdata, Verb::kSendPage);
      if (!context_.is_home() && !client_.single_writer) act(Verb::kDropTwin);
      client_.single_writer = false;
      if (will_keep_read_right) read_again(last);
      break;
    default:
      panic("invariant broken: an invalidation ended that had not begun", static_cast<uint64_t>(phase));
  }
  act(Verb::kWake);
}

// A home that loses its own page to readers asks at once to be one of them: no data has to move, and a page that its
// home writes and other nodes read is nearly always read at home as well. When a writer has asked, the home does not
// ask, so that the writer can become a single one.
void Transition::read_again(std::optional<DomainId> domain) {
  if (!domain) return;
  client_.requester = *domain;
  client_.phase = Phase::kBusyRead;
  server_.rd.insert(context_.self);
}

// --- Server -----------------------------------------------------------------------------------------------------

bool Transition::server_message(NodeId from, MessageKind kind) {
  switch (kind) {
    case MessageKind::kRreq:
    case MessageKind::kWreq:
      // The server knows that the requester has no copy, and a node has one request out at a time.
      if (server_.rd.contains(from) || server_.wr.contains(from)) return false;
      if (server_.state != ServerState::kRelInProgress &&
          (server_.read_dir.contains(from) || server_.write_dir.contains(from)))
        return false;
      serve_request(from, kind);
      return true;
    case MessageKind::kWnotify:
      return serve_wnotify(from);
    case MessageKind::kRel:
      if (server_.rl.contains(from)) return false;
      serve_release(from);
      return true;
    case MessageKind::kAck:
    case MessageKind::kDiff:
    case MessageKind::k1wdata:
    case MessageKind::kAck1w:
      return serve_answer(from, kind);
    default:
      return false;
  }
}

bool Transition::readers(const NodeSet& readers) {
  bool may_be = !readers.contains(context_.self) && mgs::may_be_read(page_);
  readers.for_each(
      [&](NodeId node) { may_be = may_be && !server_.read_dir.contains(node) && !server_.write_dir.contains(node); });
  if (!may_be) return false;
  server_.read_dir = server_.read_dir | readers;
  server_.read_elsewhere = Server::kLately;
  return true;
}

void Transition::serve_request(NodeId from, MessageKind kind) {
  const bool write = kind == MessageKind::kWreq;
  if (from != context_.self && !write && context_.reads_one_sided) server_.read_elsewhere = Server::kLately;
  switch (server_.state) {
    case ServerState::kRelInProgress:  // 33
      (write ? server_.wr : server_.rd).insert(from);
      return;
    case ServerState::kSwrite:  // 36
      server_.state = ServerState::kRelInProgress;
      (write ? server_.wr : server_.rd).insert(from);
      recall_single_writer();
      return;
    case ServerState::kRead:
    case ServerState::kWrite:  // 28, 29, 30
      if (!write) {
        server_.read_dir.insert(from);
        to(NodeSet::of(from), MessageKind::kRdat, Verb::kSendPage);
        return;
      }
      server_.write_dir.insert(from);
      server_.state = ServerState::kWrite;
      grant_whole_machine_to_home();
      to(NodeSet::of(from), MessageKind::kWdat, Verb::kSendPage);
      return;
  }
}

// When the home is the only node with a copy and writes it, the single-writer condition holds already; the figure would
// find that out at the first release. There is no page to transfer and no node to tell. But where nodes read by themselves
// and another node has read the page lately, it will probably read it again. Then the page stays an ordinary one, whose
// release leaves the home a reader: the other node finds it so that it can be read (o).
void Transition::grant_whole_machine_to_home() {
  if (!server_.read_dir.empty() || server_.write_dir != NodeSet::of(context_.self)) return;
  if (server_.read_elsewhere == 0)
    server_.state = ServerState::kSwrite;
  else
    --server_.read_elsewhere;
}

bool Transition::serve_wnotify(NodeId from) {
  switch (server_.state) {
    case ServerState::kRelInProgress:  // 33: the round invalidates that copy, and gets a diff where it expects an ACK
      return server_.answers.contains(from);
    case ServerState::kSwrite:
      return false;
    case ServerState::kRead:
    case ServerState::kWrite:  // 29
      if (!server_.read_dir.contains(from)) return false;
      server_.read_dir.erase(from);
      server_.write_dir.insert(from);
      server_.state = ServerState::kWrite;
      if (from == context_.self) {
        grant_whole_machine_to_home();
        if (server_.state == ServerState::kSwrite) enter_single_writer();
      }
      return true;
  }
  return false;
}

void Transition::serve_release(NodeId from) {
  if (server_.state == ServerState::kRelInProgress) {  // 33
    server_.rl.insert(from);
    return;
  }
  if (server_.state == ServerState::kSwrite || !server_.write_dir.contains(from)) {
    // An earlier round took that node's writes, and has ended: every copy that lacked them is gone (figure: arc 32
    // would invalidate the copies made since).
    to(NodeSet::of(from), MessageKind::kRack);
    return;
  }
  // 31
  server_.state = ServerState::kRelInProgress;
  server_.rl = NodeSet::of(from);
  server_.answers = server_.read_dir | server_.write_dir;
  if (server_.write_dir.size() > 1) {
    to(server_.answers, MessageKind::kInv);
  } else if (server_.read_dir == NodeSet::of(context_.self)) {
    // The home's own copy costs no message to remove, so it does not keep the writer from being a single one. But it
    // must be gone before the writer learns that it is alone and stops releasing.
    server_.granting = true;
    server_.answers = server_.read_dir;
    to(server_.read_dir, MessageKind::kInv);
  } else if (!server_.read_dir.empty()) {
    server_.awaiting_page = true;
    to(server_.read_dir, MessageKind::kInv);
    to(server_.write_dir, MessageKind::k1winv);
  } else if (server_.write_dir == NodeSet::of(context_.self)) {
    recall_single_writer();  // (o)
  } else {
    to(server_.write_dir, MessageKind::k1wgr);
  }
}

void Transition::recall_single_writer() {
  server_.answers = server_.write_dir;
  server_.awaiting_page = true;
  to(server_.write_dir, MessageKind::k1winv);
}

bool Transition::serve_answer(NodeId from, MessageKind kind) {
  if (server_.state != ServerState::kRelInProgress || !server_.answers.contains(from)) return false;
  switch (kind) {
    case MessageKind::kAck:
      return serve_ack(from);
    case MessageKind::kDiff:
      return serve_diff(from);
    case MessageKind::k1wdata:
      return serve_one_writer_data(from);
    default:
      return serve_one_writer_ack(from);
  }
}

bool Transition::serve_ack(NodeId from) {
  if (!server_.granting) return answered(from);
  server_.granting = false;
  server_.read_dir.clear();
  server_.answers = server_.write_dir;
  to(server_.write_dir, MessageKind::k1wgr);
  return true;
}

bool Transition::serve_diff(NodeId from) {
  if (from == context_.self) return answered(from);  // the home copy is the home's local copy
  if (server_.awaiting_page) {
    server_.diffs_waiting = true;
    act(Verb::kKeepDiff);
  } else {
    act(Verb::kMergeDiff);
  }
  return answered(from);
}

bool Transition::serve_one_writer_data(NodeId from) {
  if (!server_.awaiting_page || !server_.write_dir.contains(from)) return false;
  server_.awaiting_page = false;
  if (from != context_.self) act(Verb::kTakeHomeCopy);
  if (server_.diffs_waiting) {
    server_.diffs_waiting = false;
    act(Verb::kMergeKept);
  }
  return answered(from);
}

bool Transition::serve_one_writer_ack(NodeId from) {
  if (server_.awaiting_page || !server_.write_dir.contains(from)) return false;
  if (!(server_.rd | server_.wr).empty()) {  // a node has asked meanwhile: the condition is broken before it held
    recall_single_writer();
    return true;
  }
  // 35
  server_.answers.clear();
  server_.state = ServerState::kSwrite;
  to(server_.rl, MessageKind::kRack);
  server_.rl.clear();
  return true;
}

bool Transition::answered(NodeId from) {
  server_.answers.erase(from);
  if (server_.answers.empty()) finish_round();
  return true;
}

void Transition::finish_round() {  // 34
  MG_CHECK(!server_.awaiting_page && !server_.diffs_waiting);
  const NodeSet released = server_.rl;
  server_.read_dir = server_.rd;
  server_.write_dir = server_.wr;
  server_.rd.clear();
  server_.wr.clear();
  server_.rl.clear();
  server_.state = server_.write_dir.empty() ? ServerState::kRead : ServerState::kWrite;
  grant_whole_machine_to_home();
  // RACK is sent before data: a node can be given the page to write again only after it knows that its release is done.
  to(released, MessageKind::kRack);
  to(server_.read_dir, MessageKind::kRdat, Verb::kSendPage);
  to(server_.write_dir, MessageKind::kWdat, Verb::kSendPage);
}

}  // namespace

const char* name(MessageKind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(MessageKind::kKindCount)> kNames = {
      "RREQ",  "WREQ", "REL",  "WNOTIFY", "ACK", "DIFF",  "1WDATA",
      "ACK1W", "RDAT", "WDAT", "RACK",    "INV", "1WINV", "1WGR"};
  return kind < MessageKind::kKindCount ? kNames[static_cast<size_t>(kind)] : "unknown";
}

FaultOutcome on_fault(Page& page, const PageContext& context, DomainId domain, Access access, Actions& actions) {
  return Transition(page, context, actions).fault(domain, access);
}

bool on_release(Page& page, const PageContext& context, DomainId domain, Actions& actions) {
  return Transition(page, context, actions).release(domain);
}

void on_unmapped(Page& page, const PageContext& context, DomainId domain, Actions& actions) {
  Transition(page, context, actions).unmapped(domain);
}

void on_fetched(Page& page, const PageContext& context, Actions& actions) {
  Transition(page, context, actions).fetched();
}

void on_refused(Page& page, const PageContext& context, Actions& actions) {
  Transition(page, context, actions).refused();
}

bool on_readers(Page& page, const PageContext& context, const NodeSet& readers) {
  Actions none;
  return readers.empty() || Transition(page, context, none).readers(readers);
}

bool may_be_read(const Page& page) {
  return page.server.state == ServerState::kRead || page.server.state == ServerState::kWrite;
}

bool will_keep_read_right(const Page& page, const PageContext& context) {
  return page.client.phase == Phase::k1wInvInProgress && context.is_home() && page.server.wr.empty();
}

bool on_message(Page& page, const PageContext& context, NodeId from, MessageKind kind, Actions& actions) {
  Transition transition(page, context, actions);
  if (!transition.message(from, kind)) return false;
  transition.process_self_messages();
  return true;
}

}  // namespace multigrain::mgs
