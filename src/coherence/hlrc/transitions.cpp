// These are the transitions of HLRC. B.1 to B.4 are sections of [GeNIMA], III; H1 to H7 are in transitions.h.
//
// This happens at a node that is not the page's home. "log": append to the home's fetch log, unless the node is in it
// (H5).
//
//   state       event         actions                            next state, and what else is different
//   ----------  ------------  ---------------------------------  ------------------------------------------------------
//   invalid     read fault    log, fetch, grant read             read; those that follow may be fetched ahead (B.2)
//   invalid     write fault   log, fetch, twin, queue, grant     write
//   invalid     prefetch      log, fetch, grant read             read
//   invalid     prefetch      log, fetch                         prefetched: the last of those fetched ahead (B.2)
//   invalid     write notice                                     invalid; not in the fetch log any more
//   prefetched  read fault    grant read                         read; those that follow are fetched ahead (B.2)
//   prefetched  write fault   twin, queue, grant write           write
//   prefetched  write notice  count as wasted                    invalid; not in the fetch log any more
//   read        read fault    grant read                         read
//   read        write fault   twin, queue, upgrade               write
//   read        write notice  revoke                             invalid; not in the fetch log any more
//   read, used  write notice  log, refresh                       read
//   write       either fault  grant write                        write
//   write       write notice  revoke, deposit, drop twin         invalid; a notice is pending unless the diff is empty
//   write, used write notice  log, merge                         write
//   write       interval end  revoke write, deposit, drop twin   read; a notice is pending unless the diff is empty
//   write, used interval end  queue, deposit, update twin        write; a notice is pending unless the diff is empty
//
// This happens at the home while the page is private: no other node has fetched it since the home's last notice of it.
//
//   invalid     either fault  grant write                        write
//   read        read fault    grant read                         read
//   read        write fault   upgrade                            write
//   write       either fault  grant write                        write
//   write       protect       revoke write                       read
//   inv., read  fetched       -                                  shared
//   write       fetched       queue                              shared; a notice is pending
//
// This happens at the home while the page is shared.
//
//   invalid     read fault    grant read                         read
//   invalid     write fault   queue, grant write                 write; a notice is pending
//   read        read fault    grant read                         read
//   read        write fault   queue, upgrade                     write; a notice is pending
//   write       either fault  grant write                        write
//   write       interval end  revoke write                       read
//   write, used interval end  -                                  write
//
// This happens at any node.
//
//   any         clean         notice, if one is pending          not queued, unless a copy stays writable; at home: private
//
// The home of a page moves, at a barrier of all processors (H6).
//
//   read        from here     -                                  read; in the fetch log: the new home counts it as shared
//   write       from here     revoke write                       the same: private, and fetched after this node's release
//   invalid     from here     -                                  invalid
//   any         to here       drop twin, if there is one         the same, shared; a notice is pending if it is writable
//
// A page moves to lines, at a barrier of all processors (H7).
//
//   inv., pref. moves         -                                  by lines
//   read        moves         revoke                             by lines
//   write       moves         revoke; drop twin, if there is one by lines
//   by lines    any                                              by lines
//
// "used": the driver takes the page for one that is in use (use_history.h), and keeps its right rather than taking it and
// granting it again at the next fault. Either transition is right for every page.
//
// What the tables do not have changes nothing. "queue" is done unless the page is queued, and always before the right
// is granted: another processor of the node may use the right at once, and release before this one goes on (H2).
#include "coherence/hlrc/transitions.h"

#include <algorithm>

namespace multigrain::hlrc {
namespace {

void log_and_fetch(Page& page, Actions& actions) {
  if (!page.logged) actions.push(Verb::kLogFetch);
  page.logged = true;
  actions.push(Verb::kFetch);
}

void queue(Page& page, Actions& actions) {
  if (page.queued) return;
  page.queued = true;
  actions.push(Verb::kQueue);
}

void enter(Page& page, PageState state, Verb grant, Actions& actions) {
  page.state = state;
  actions.push(grant);
}

// --- Read and write. Another processor has handled a fault on the page before, or the kernel has dropped the entry of
// the page table. The same right is granted once more.

FaultOutcome grant_again(const Page& page, Actions& actions) {
  actions.push(page.state == PageState::kWrite ? Verb::kGrantWrite : Verb::kGrantRead);
  return FaultOutcome::kAlone;
}

// --- At a node that is not the home

FaultOutcome read_fault_on_invalid(Page& page, Actions& actions) {
  log_and_fetch(page, actions);
  enter(page, PageState::kRead, Verb::kGrantRead, actions);
  return FaultOutcome::kFetched;
}

FaultOutcome make_writable(Page& page, Verb grant, Actions& actions) {
  actions.push(Verb::kMakeTwin);
  queue(page, actions);
  enter(page, PageState::kWrite, grant, actions);
  return FaultOutcome::kAlone;
}

FaultOutcome write_fault_on_invalid(Page& page, Actions& actions) {
  log_and_fetch(page, actions);
  return make_writable(page, Verb::kGrantWrite, actions);
}

void prefetch_of_invalid(Page& page, bool with_rights, Actions& actions) {
  log_and_fetch(page, actions);
  if (with_rights)
    enter(page, PageState::kRead, Verb::kGrantRead, actions);
  else
    page.state = PageState::kPrefetched;
}

FaultOutcome read_fault_on_prefetched(Page& page, Actions& actions) {
  enter(page, PageState::kRead, Verb::kGrantRead, actions);
  return FaultOutcome::kPrefetched;
}

FaultOutcome write_fault_on_prefetched(Page& page, Actions& actions) {
  return make_writable(page, Verb::kGrantWrite, actions);
}

void notice_of_prefetched(Page& page, Actions& actions) {
  page.state = PageState::kInvalid;
  actions.push(Verb::kWasted);
}

FaultOutcome write_fault_on_read(Page& page, Actions& actions) {
  return make_writable(page, Verb::kUpgrade, actions);
}

void notice_of_read(Page& page, Actions& actions) {
  page.state = PageState::kInvalid;
  actions.push(Verb::kRevoke);
}

void notice_of_write(Page& page, Actions& actions) {
  page.state = PageState::kInvalid;
  actions.push(Verb::kRevoke);
  actions.push(Verb::kDeposit);
  actions.push(Verb::kDropTwin);
}

// The page joins the list of the next interval before the diff is made: what processors of this node write after that
// belongs to that interval (H2).
void interval_end_of_used_write(Actions& actions) {
  actions.push(Verb::kQueue);
  actions.push(Verb::kDeposit);
  actions.push(Verb::kUpdateTwin);
}

// The home does not count the page as fetched any more, since its notice or another node's. So this fetch is logged.
void notice_of_used(Page& page, Verb how, Actions& actions) {
  page.logged = true;
  actions.push(Verb::kLogFetch);
  actions.push(how);
}

void interval_end_of_write(Page& page, Actions& actions) {
  page.state = PageState::kRead;
  actions.push(Verb::kRevokeWrite);
  actions.push(Verb::kDeposit);
  actions.push(Verb::kDropTwin);
}

FaultOutcome fault_elsewhere(Page& page, Access access, Actions& actions) {
  const bool is_read = access == Access::kRead;
  switch (page.state) {
    case PageState::kInvalid:
      return is_read ? read_fault_on_invalid(page, actions) : write_fault_on_invalid(page, actions);
    case PageState::kPrefetched:
      return is_read ? read_fault_on_prefetched(page, actions) : write_fault_on_prefetched(page, actions);
    case PageState::kRead:
      return is_read ? grant_again(page, actions) : write_fault_on_read(page, actions);
    case PageState::kWrite:
    case PageState::kByLines:
      break;
  }
  return grant_again(page, actions);
}

// --- At the home, private: writes need no notice, so the page needs no faults.

FaultOutcome fault_on_private_invalid(Page& page, Actions& actions) {
  enter(page, PageState::kWrite, Verb::kGrantWrite, actions);
  return FaultOutcome::kAlone;
}

FaultOutcome write_fault_on_private_read(Page& page, Actions& actions) {
  enter(page, PageState::kWrite, Verb::kUpgrade, actions);
  return FaultOutcome::kAlone;
}

void private_write_is_fetched(Page& page, Actions& actions) {
  page.shared = true;
  page.notice_pending = true;
  queue(page, actions);
}

FaultOutcome fault_on_private(Page& page, Access access, Actions& actions) {
  if (page.state == PageState::kInvalid) return fault_on_private_invalid(page, actions);
  if (page.state == PageState::kRead && access == Access::kWrite) return write_fault_on_private_read(page, actions);
  return grant_again(page, actions);
}

// --- At the home, shared

FaultOutcome read_fault_on_shared_invalid(Page& page, Actions& actions) {
  enter(page, PageState::kRead, Verb::kGrantRead, actions);
  return FaultOutcome::kAlone;
}

// The page is invalid or readable.
FaultOutcome write_fault_on_shared(Page& page, Actions& actions) {
  page.notice_pending = true;
  queue(page, actions);
  enter(page, PageState::kWrite, page.state == PageState::kRead ? Verb::kUpgrade : Verb::kGrantWrite, actions);
  return FaultOutcome::kAlone;
}

void interval_end_of_shared_write(Page& page, Actions& actions) {
  page.state = PageState::kRead;
  actions.push(Verb::kRevokeWrite);
}

FaultOutcome fault_on_shared(Page& page, Access access, Actions& actions) {
  if (page.state == PageState::kWrite) return grant_again(page, actions);
  if (access == Access::kWrite) return write_fault_on_shared(page, actions);
  return page.state == PageState::kRead ? grant_again(page, actions) : read_fault_on_shared_invalid(page, actions);
}

}  // namespace

// --- Events

FaultOutcome on_fault(Page& page, const Context& context, Access access, Actions& actions) {
  if (page.state == PageState::kByLines) return FaultOutcome::kAlone;
  if (!context.is_home()) return fault_elsewhere(page, access, actions);
  return page.shared ? fault_on_shared(page, access, actions) : fault_on_private(page, access, actions);
}

void on_prefetch(Page& page, const Context& context, bool with_rights, Actions& actions) {
  if (!context.is_home() && page.state == PageState::kInvalid) prefetch_of_invalid(page, with_rights, actions);
}

void on_notice(Page& page, const Context& context, bool is_used, Actions& actions) {
  if (context.is_home()) return;
  page.logged = false;
  if (is_used && page.state == PageState::kRead) return notice_of_used(page, Verb::kRefresh, actions);
  if (is_used && page.state == PageState::kWrite) return notice_of_used(page, Verb::kMerge, actions);
  switch (page.state) {
    case PageState::kInvalid:
    case PageState::kByLines:
      return;
    case PageState::kPrefetched:
      return notice_of_prefetched(page, actions);
    case PageState::kRead:
      return notice_of_read(page, actions);
    case PageState::kWrite:
      return notice_of_write(page, actions);
  }
}

void on_deposited(Page& page, bool changed) {
  page.notice_pending = page.notice_pending || changed;
}

void on_fetched_elsewhere(Page& page, Actions& actions) {
  if (page.shared || page.state == PageState::kByLines) return;
  page.shared = true;
  if (page.state == PageState::kWrite) private_write_is_fetched(page, actions);
}

void on_interval_end(Page& page, const Context& context, bool is_used, Actions& actions) {
  if (page.state != PageState::kWrite) return;
  if (!context.is_home()) return is_used ? interval_end_of_used_write(actions) : interval_end_of_write(page, actions);
  if (page.shared && !is_used) interval_end_of_shared_write(page, actions);
}

// At the home, a page that the notices name counts as never fetched: every other node loses its copy before it sees the
// next interval.
void on_clean(Page& page, const Context& context, Actions& actions) {
  if (page.notice_pending) {
    actions.push(Verb::kNotice);
    page.shared = false;
  }
  page.notice_pending = false;
  page.queued = page.state == PageState::kWrite && !context.is_home();
}

void on_protect(Page& page, const Context& context, Actions& actions) {
  if (!context.is_home() || page.shared || page.state != PageState::kWrite) return;
  page.state = PageState::kRead;
  actions.push(Verb::kRevokeWrite);
}

bool on_episode_end(Writers& writers, std::optional<NodeId> writer) {
  if (!writer) {
    writers.last_plus_one = 0;
    writers.episodes = 0;
    return false;
  }
  constexpr unsigned kMostEpisodes = 1u << Writers::kMostMoves;
  const uint32_t plus_one = (writer->value + 1u) & 0x7ff;
  const uint32_t before = writers.last_plus_one == plus_one ? writers.episodes : 0u;
  writers.episodes = std::min(before + 1, kMostEpisodes) & 0x7f;
  writers.last_plus_one = plus_one & 0x7ff;
  if (writers.home_plus_one == plus_one || writers.episodes <= writers.needed()) return false;
  if (writers.home_plus_one != 0) writers.moves = std::min(writers.moves + 1u, Writers::kMostMoves) & 7;
  writers.home_plus_one = plus_one & 0x7ff;
  return true;
}

void on_home_leaves(Page& page, Actions& actions) {
  if (page.state == PageState::kWrite) actions.push(Verb::kRevokeWrite);
  const bool has_copy = page.state != PageState::kInvalid;
  page = {.state = has_copy ? PageState::kRead : PageState::kInvalid, .logged = has_copy};
}

// The frame is complete in any state: a node that came too late for notices has invalidated it, and did nothing else to
// it.
void on_home_comes(Page& page, Actions& actions) {
  if (page.state == PageState::kPrefetched) page.state = PageState::kInvalid;
  if (page.state == PageState::kWrite) {
    actions.push(Verb::kDropTwin);
    page.notice_pending = true;
  }
  page.shared = true;
  page.logged = false;
}

// The page has a twin if it is writable and at home elsewhere. The driver knows whether it has one.
void on_move_to_lines(Page& page, Actions& actions) {
  if (page.state == PageState::kRead || page.state == PageState::kWrite) actions.push(Verb::kRevoke);
  if (page.state == PageState::kWrite) actions.push(Verb::kDropTwin);
  page = {.state = PageState::kByLines, .queued = page.queued};
}

}  // namespace multigrain::hlrc
