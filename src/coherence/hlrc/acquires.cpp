// A part of the driver: acquires, and the write notices that they apply.
#include <algorithm>
#include <array>

#include "base/steps.h"
#include "coherence/hlrc/driver.h"
#include "memory/diff.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

void Driver::acquire(NodeId from) {
  if (from == self_) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  NoticeReader::Timestamp timestamp(nodes_);
  reader_->read_timestamp(from, known_, timestamp);
  apply_notices(timestamp);
}

void Driver::acquire_all() {
  if (nodes_ == 1) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  NoticeReader::Timestamp timestamp(nodes_);
  reader_->read_all_timestamps(known_, timestamp);
  apply_notices(timestamp);
}

// The timestamps are read before arrived_. If this node has left all barriers at which it has arrived, then no node had
// left a later one when they were read, so all that they name was written before any home moves that this node does not
// know of yet (H6). Between a node's arrival and its leaving there is nothing to do, because leaving applies everything.
void Driver::catch_up() {
  bool has_acquired = false;
  for (unsigned n = 0; n < nodes_; ++n) {
    const uint64_t known_now = known(NodeId(static_cast<uint16_t>(n)));
    has_acquired |= n != self_.value && known_now != known_before_[n];
    known_before_[n] = known_now;
  }
  if (has_acquired) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  NoticeReader::Timestamp timestamp(nodes_);
  reader_->read_all_timestamps(known_, timestamp);
  MULTIGRAIN_STEP(&known_);
  if (nodes_with_news(timestamp.time(), known_, self_, nodes_).empty()) return;
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  if (options_.homes_follow && left_ != arrived_.load(std::memory_order_acquire)) return;
  apply_news(timestamp);
}

void Driver::apply_notices(const NoticeReader::Timestamp& timestamp) {
  MULTIGRAIN_STEP(&known_);
  if (nodes_with_news(timestamp.time(), known_, self_, nodes_).empty()) return;
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  apply_news(timestamp);
}

// The node has found notices that it has not applied.
void Driver::begin_epoch() {
  count(Counter::kAcquires);
  if (learns()) epochs_.fetch_add(1, std::memory_order_relaxed);
}

void Driver::apply_news(const NoticeReader::Timestamp& timestamp) {
  const NodeSet news = nodes_with_news(timestamp.time(), known_, self_, nodes_);
  if (news.empty()) return;
  begin_epoch();
  if (const auto runs = reader_->read(timestamp, known_, news)) {
    keeps_used_ = leaves_barrier_ || pages_of(*runs) <= kMostKept;
    invalidate_runs(*runs);
  } else {
    count(Counter::kNoticesLost);
    keeps_used_ = false;
    invalidate({PageId(0), pages_looked_up()});
  }
  // The timestamp is raised last, because another processor that finds nothing to apply goes on at once.
  news.for_each([&](NodeId node) { raise_timestamp(node, timestamp.time()[node.value]); });
}

// `runs` are in ascending order. A part of the shared work is a group of pages, whichever runs they belong to.
void Driver::invalidate_runs(std::span<const NoticeRun> runs) {
  const uint64_t pages = pages_of(runs);
  if (!options_.cooperative || pages <= kGroup) {
    for (const NoticeRun& run : runs) invalidate(run);
    return;
  }
  runs_to_invalidate_.run((pages + kGroup - 1) / kGroup, [&](uint64_t part) {
    for_each_slice(runs, part * kGroup, kGroup, [this](const NoticeRun& slice) { invalidate(slice); });
  });
}

// The pages of a group lose their rights together, or get what has changed together. Their locks are held.
struct Driver::Group {
  std::array<PageId, kGroup> pages;
  std::array<Actions, kGroup> actions;
  size_t size = 0;
};

// Returns whether a page that a notice names is likely to be used before the next notice names it, so that it gets what
// has changed and keeps its right.
bool Driver::is_used(Record& record) {
  const bool has_rights = record.page.state == PageState::kRead || record.page.state == PageState::kWrite;
  if (options_.updates != Updates::kLearned)
    return MULTIGRAIN_CHOICE(options_.updates == Updates::kAlways && has_rights);
  switch (record.page.state) {
    case PageState::kRead:
      return keeps_used_ && record.use.is_read();
    case PageState::kWrite:
      return keeps_used_;
    case PageState::kInvalid:
    case PageState::kPrefetched:
      record.use.missed();
      break;
    case PageState::kByLines:
      break;
  }
  return false;
}

void Driver::invalidate(NoticeRun run) {
  Group group;
  for (uint64_t next = run.first.value; next < run.end(); ++next) {
    gather(PageId(next), group);
    if (group.size == kGroup) invalidate_group(group);
  }
  invalidate_group(group);
}

// Thread safety analysis is off, here and in invalidate_group(): a page that joins the group is locked until
// invalidate_group() has handled it.
void Driver::gather(PageId page, Group& group) MG_NO_THREAD_SAFETY_ANALYSIS {
  Record& record = records_[page.value];
  // This node has never fetched a page whose home it never looked up. And a fault that is about to look it up takes the
  // record's lock before it fetches, so it is too late to fetch anything older than these notices.
  if (record.home_plus_one.load(std::memory_order_acquire) == 0 || context(record).is_home()) return;
  MULTIGRAIN_LOCK_STEP(record.lock);
  record.lock.lock();
  Actions actions;
  on_notice(record.page, context(record), is_used(record), actions);
  // A notice of a page that is not here makes no transition.
  if (!actions.empty()) virtual_time::spend(&MachineCosts::transition);
  if (actions.contains(Verb::kWasted)) {
    // This is the last page of a group that was fetched ahead. So it does not pay to fetch the pages behind the page
    // whose fault began the group. (Of a chain, the processor's next fault says so.)
    count(Counter::kWastedPrefetches);
    if (record.prefetch_distance != 0) {
      records_[page.value - record.prefetch_distance].prefetch_in_vain.store(true, std::memory_order_relaxed);
      history_.wasted();
    }
  }
  if (actions.empty() || actions.contains(Verb::kWasted)) {
    record.lock.unlock();
    return;
  }
  group.pages[group.size] = page;
  group.actions[group.size++] = actions;
}

void Driver::invalidate_group(Group& group) MG_NO_THREAD_SAFETY_ANALYSIS {
  RunJoiner runs = runs_of_rights();
  const auto has = [&](size_t i, Verb verb) { return group.actions[i].contains(verb); };
  const auto take = [this](const std::optional<NoticeRun>& run) {
    if (!run) return;
    revoke(run->first, run->count);
    count(Counter::kInvalidations, run->count);
  };
  for (size_t i = 0; i < group.size; ++i)
    if (has(i, Verb::kRevoke)) take(runs.add(group.pages[i]));
  take(runs.close());
  {
    Deposits under_way(services_.fabric);
    for (size_t i = 0; i < group.size; ++i) {
      if (!has(i, Verb::kDeposit)) continue;
      deposit(group.pages[i], records_[group.pages[i].value], false, under_way);
      count(Counter::kEarlyDeposits);
    }
  }
  update(group);
  for (size_t i = group.size; i-- > 0;) records_[group.pages[i].value].lock.unlock();
  group.size = 0;
}

// Pages that stay in use get what has changed. A copy that is only read is fetched whole, into its frame. With a copy that is
// written, the home copy goes to a buffer first, unless this node can read it where it is, and what is different from the twin goes into the
// frame and the twin (H4). All fetches are under way at the same time.
void Driver::update(const Group& group) MG_NO_THREAD_SAFETY_ANALYSIS {
  struct Fetch {
    Completion log, page;
    uint64_t replaced;
    const std::byte* home_copy;  // to merge; nullptr: the page is only read here
    std::byte* buffer;           // it is in this one, if that is not nullptr
  };
  std::array<Fetch, kGroup> fetches;
  std::array<size_t, kGroup> updated;
  size_t n = 0;
  {
    const CategoryScope waiting(this_profile(), Category::kDataWait);
    for (size_t i = 0; i < group.size; ++i) {
      if (!group.actions[i].contains(Verb::kLogFetch)) continue;
      const PageId page = group.pages[i];
      const NodeId home = records_[page.value].home();
      const bool merges = group.actions[i].contains(Verb::kMerge);
      Fetch& fetch = fetches[n];
      fetch.log = fetch.page = {};
      fetch.home_copy = fetch.buffer = nullptr;
      fetch.log = fetch_log_.start_append(home, {page, 1}, fetch.replaced);
      updated[n++] = i;
      if (merges) fetch.home_copy = services_.fabric.memory_of(home, SegmentId::kFrames, offset(page), page_size_);
      if (fetch.home_copy != nullptr) continue;
      if (merges) fetch.home_copy = fetch.buffer = twins_->acquire();
      const std::span<std::byte> to(merges ? fetch.buffer : frame(page), page_size_);
      fetch.page = services_.fabric.start_get_after(fetch.log, home, SegmentId::kFrames, offset(page), to);
    }
    for (size_t k = 0; k < n; ++k) {
      services_.fabric.wait(fetches[k].log);
      services_.fabric.wait(fetches[k].page);
    }
  }
  for (size_t k = 0; k < n; ++k) {
    if (fetches[k].home_copy == nullptr) continue;
    merge(group.pages[updated[k]], records_[group.pages[updated[k]].value], fetches[k].home_copy);
    if (fetches[k].buffer != nullptr) twins_->release(fetches[k].buffer);
  }
  count(Counter::kPagesFetched, n);
  count(Counter::kUpdates, n);
}

// Stores the bytes in which the home copy is different from the twin into the frame and the twin, and no other byte:
// processors of this node may write the others.
void Driver::merge(PageId page, Record& record, const std::byte* home_copy) {
  const SubTimeScope timed(this_profile(), SubTime::kDiffs);
  MULTIGRAIN_STEP(frame(page));
  const DepositedChanges changed = deposit_changes(frame(page), home_copy, record.twin, page_size_, true);
  virtual_time::spend(&MachineCosts::diff_make_byte, page_size_);
  virtual_time::spend(&MachineCosts::diff_apply_byte, changed.bytes);
}

}  // namespace multigrain::hlrc
