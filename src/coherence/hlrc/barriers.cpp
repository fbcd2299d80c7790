// This part of the driver handles barriers of all processors, at which homes move to the nodes that write the pages (H6
// of transitions.h), and pages of which nodes write a few lines at a time move to lines (H7).
#include <algorithm>
#include <utility>

#include "base/steps.h"
#include "coherence/hlrc/driver.h"
#include "coherence/hlrc/words.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc {

void Driver::release_at_barrier() {
  if (nodes_ == 1 || (!options_.homes_follow && is_clean())) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(interval_lock_);
  const LockGuard one_at_a_time(interval_lock_);
  at_barrier_ = true;
  release_interval();
  at_barrier_ = false;
  const uint64_t episode = arrived_.load(std::memory_order_relaxed);
  episode_ends_[episode % kRecently] = intervals_.load(std::memory_order_relaxed);
  if (options_.homes_follow) episode_->publish(episode);
  if (to_lines_) publish_wanted(episode);
  arrived_.store(episode + 1, std::memory_order_release);
}

// The first of the node's processors to leave the barrier does all of this. Homes move before the notices are applied,
// because those may come from a node that has left the barrier already, and has written pages in place that are at home
// there now.
void Driver::acquire_at_barrier() {
  if (nodes_ == 1) return;
  if (!options_.homes_follow) return acquire_all();
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  const uint64_t arrived = arrived_.load(std::memory_order_acquire);
  if (left_ == arrived) return;
  episode_->start(arrived - 1);
  if (to_lines_) to_lines_->start(arrived - 1);
  NoticeReader::Timestamp timestamp;
  reader_->read_all_timestamps(known_, timestamp);
  episode_->finish(arrived - 1);
  if (to_lines_) to_lines_->finish(arrived - 1);
  // If one node alone has written anything, a serial part of the program has ended. That says nothing about which nodes
  // will write in the parallel parts, and pages that several nodes will write are better spread as they were placed.
  const auto lists = episode_->lists();
  const auto has_written = [](std::span<const NoticeRun> list) { return !list.empty(); };
  if (lists && std::ranges::count_if(*lists, has_written) > 1)
    for_each_written_run(*lists, [this](const NoticeRun& run, std::optional<NodeId> writer) {
      acquire_lock_.assume_held();
      move_homes(run, writer);
    });
  episode_->forget();
  if (to_lines_) {
    if (const auto wanted = to_lines_->lists())
      for_each_written_run(*wanted, [this](const NoticeRun& run, std::optional<NodeId>) { move_to_lines(run); });
    else
      // A node has refused, and will go on doing so.
      moves_no_more_.store(true, std::memory_order_relaxed);
    to_lines_->forget();
  }
  leaves_barrier_ = true;
  apply_news(timestamp);
  leaves_barrier_ = false;
  left_ = arrived;
}

// Pages that one node alone has written, or several.
void Driver::move_homes(NoticeRun run, std::optional<NodeId> writer) {
  for (uint64_t next = run.first.value; next < run.end(); ++next) {
    Record& record = records_[next];
    const uint16_t home_plus_one = record.home_plus_one.load(std::memory_order_relaxed);
    // A page may move to where it is: only some nodes know.
    if (on_episode_end(record.writers, writer) && home_plus_one != writer->value + 1u)
      move_home(PageId(next), record, *writer);
  }
}

void Driver::move_home(PageId page, Record& record, NodeId writer) {
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  const bool leaves = home_of(page, record, false) == self_;
  set_home(page, record, writer);
  if (leaves) {
    Actions actions;
    on_home_leaves(record.page, actions);
    if (actions.contains(Verb::kRevokeWrite)) revoke_write(page, 1);
  } else if (writer == self_) {
    Actions actions;
    on_home_comes(record.page, actions);
    if (actions.contains(Verb::kDropTwin)) drop_twin(record);
    this_profile().count(Counter::kHomesMoved);
  }
}

// --- Pages that move to lines

Status Driver::offer_lines(LineKeeper& lines) {
  if (!options_.homes_follow || nodes_ == 1) return {};
  const uint64_t pages = services_.region.page_count();
  auto to_lines = EpisodePages::create(
      services_.fabric, pages, {.first = words::kToLines, .bytes = words::kToLinesBytes, .runs = words::kToLinesRuns});
  if (!to_lines) return tl::unexpected(to_lines.error());
  auto wanted = SparseTable<PageId>::create(pages, "pages to move to lines");
  if (!wanted) return tl::unexpected(wanted.error());
  const LockGuard hold(wanted_lock_);
  to_lines_ = std::move(*to_lines);
  wanted_ = std::move(*wanted);
  lines_ = &lines;
  return {};
}

// A diff of the page has changed so many lines, or none.
void Driver::consider_lines(PageId page, Record& record, uint32_t changed_lines) {
  if (moves_no_more_.load(std::memory_order_relaxed)) return;
  const auto has_moved = [this](uint64_t other) {
    return other < records_.count() && records_[other].by_lines.load(std::memory_order_relaxed);
  };
  const bool wants = options_.to_lines == ToLines::kAtOnce
                         ? changed_lines != 0 && record.lines.want()
                         : record.lines.compared(changed_lines, static_cast<uint32_t>(page_size_ / Deposits::kLine),
                                                 has_moved(page.value - 1) || has_moved(page.value + 1));
  if (record.awaits_lines && changed_lines != 0) {
    const uint32_t lost = LineHistory::lost(changed_lines);
    if (lost_.fetch_add(lost, std::memory_order_relaxed) + lost >= kLinesOfABarrier)
      wants_barrier_.store(1, std::memory_order_relaxed);
  }
  if (!wants || !lines_->may_take(page)) return;
  record.awaits_lines = true;
  const LockGuard hold(wanted_lock_);
  wanted_[wanted_count_++] = page;
}

// What there is no room for waits for the next barrier: a list that is too long would keep all nodes from moving anything.
void Driver::publish_wanted(uint64_t episode) {
  lost_.store(0, std::memory_order_relaxed);
  wants_barrier_.store(0, std::memory_order_relaxed);
  if (lines_->takes_no_more()) to_lines_->refuse();
  {
    const LockGuard hold(wanted_lock_);
    for (uint64_t published = 0; wanted_count_ != 0 && published < words::kToLinesRuns;) {
      const PageId page = wanted_[--wanted_count_];
      // Another node may have wanted it, too.
      if (records_[page.value].by_lines.load(std::memory_order_relaxed)) continue;
      to_lines_->add(page);
      ++published;
    }
  }
  to_lines_->publish(episode);
}

// A page that has moved already stays as it is: a node may want it at a later barrier than another one. All nodes skip the same
// pages.
void Driver::move_to_lines(NoticeRun run) {
  const auto has_moved = [this](uint64_t page) { return records_[page].by_lines.load(std::memory_order_relaxed); };
  for (uint64_t page = run.first.value, next; page < run.end(); page = next) {
    for (next = page; next < run.end() && next - page < kGroup && !has_moved(next); ++next)
      if (!home_of(PageId(next), records_[next], true))
        panic("a node wants a page to move to lines that is not allocated:", next);
    if (next != page)
      give_up({PageId(page), next - page});
    else
      ++next;
  }
}

// At most a group of pages. Without thread safety analysis: it holds the locks of all of them.
void Driver::give_up(NoticeRun run) MG_NO_THREAD_SAFETY_ANALYSIS {
  RunJoiner runs = runs_of_rights();
  const auto take = [this](const std::optional<NoticeRun>& some) {
    if (some) revoke(some->first, some->count);
  };
  for (uint64_t page = run.first.value; page < run.end(); ++page) {
    Record& record = records_[page];
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    Actions actions;
    on_move_to_lines(record.page, actions);
    record.by_lines.store(true, std::memory_order_relaxed);
    if (actions.contains(Verb::kRevoke)) take(runs.add(PageId(page)));
    if (actions.contains(Verb::kDropTwin) && record.twin != nullptr) drop_twin(record);
  }
  take(runs.close());
  for (uint64_t page = run.first.value, next; page < run.end(); page = next) {
    const NodeId home = records_[page].home();
    for (next = page + 1; next < run.end() && records_[next].home() == home;) ++next;
    lines_->take(PageId(page), next - page, home);
    if (home == self_) this_profile().count(Counter::kPagesToLines, next - page);
  }
  for (uint64_t page = run.end(); page-- > run.first.value;) records_[page].lock.unlock();
}

}  // namespace multigrain::hlrc
