#include "coherence/hlrc/transitions.h"

namespace multigrain::hlrc {
namespace {

void queue(Page& page, Actions& actions) {
  if (page.queued) return;
  page.queued = true;
  actions.add(Verb::kQueue);
}

}  // namespace

void on_fault(Page& page, bool is_home, bool is_write, Actions& actions) {
  const Access before = page.access;
  if (before == Access::kWrite || (before == Access::kRead && !is_write)) {
    // Another processor was first, or the kernel has dropped the entry: what is granted is granted once more.
    actions.add(before == Access::kWrite ? Verb::kGrantWrite : Verb::kGrantRead);
    return;
  }
  if (is_home && !page.shared) {
    // Nobody else has the page, or will have it for long: writes need no notice, and so the page no faults.
    page.access = Access::kWrite;
    actions.add(before == Access::kRead ? Verb::kUpgrade : Verb::kGrantWrite);
    return;
  }
  if (!is_home && before == Access::kNone && !page.prefetched) actions.add(Verb::kFetch);
  page.prefetched = false;
  if (!is_write) {
    page.access = Access::kRead;
    actions.add(Verb::kGrantRead);
    return;
  }
  if (is_home)
    page.notice_pending = true;
  else
    actions.add(Verb::kMakeTwin);
  // Before the right: another processor of the node may use it at once, and release before this one goes on.
  queue(page, actions);
  page.access = Access::kWrite;
  actions.add(before == Access::kRead ? Verb::kUpgrade : Verb::kGrantWrite);
}

void on_prefetch(Page& page, bool is_home, bool with_rights, Actions& actions) {
  if (is_home || page.access != Access::kNone || page.prefetched) return;
  actions.add(Verb::kFetch);
  if (with_rights) {
    page.access = Access::kRead;
    actions.add(Verb::kGrantRead);
  } else {
    page.prefetched = true;
  }
}

void on_notice(Page& page, bool is_home, Actions& actions) {
  if (is_home) return;
  if (page.prefetched) {
    page.prefetched = false;
    actions.add(Verb::kWasted);
  }
  if (page.access == Access::kNone) return;
  actions.add(Verb::kRevoke);
  if (page.access == Access::kWrite) {
    actions.add(Verb::kDeposit);
    actions.add(Verb::kDropTwin);
  }
  page.access = Access::kNone;
}

void on_deposited(Page& page, bool changed) {
  page.notice_pending = page.notice_pending || changed;
}

void on_interval_end(Page& page, bool is_home, Actions& actions) {
  if (page.access != Access::kWrite) return;
  if (is_home && !page.shared) return;
  page.access = Access::kRead;
  actions.add(Verb::kRevokeWrite);
  if (is_home) return;
  actions.add(Verb::kDeposit);
  actions.add(Verb::kDropTwin);
}

void on_clean(Page& page, Actions& actions) {
  if (page.notice_pending) {
    actions.add(Verb::kNotice);
    page.shared = false;
  }
  page.notice_pending = false;
  page.queued = false;
}

void on_fetched_elsewhere(Page& page, Actions& actions) {
  if (page.shared) return;
  page.shared = true;
  if (page.access != Access::kWrite) return;
  page.notice_pending = true;
  queue(page, actions);
}

}  // namespace multigrain::hlrc
