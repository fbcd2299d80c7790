// This part of the driver gives pages to lines (H7 of transitions.h): it finds those that would be faster there, and moves them at
// barriers of all processors (barriers.cpp).
#include <algorithm>

#include "base/steps.h"
#include "coherence/hlrc/driver.h"
#include "coherence/hlrc/words.h"
#include "memory/diff.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc {

Status Driver::offer_lines(LineKeeper& lines) {
  if (!options_.homes_follow || nodes_ == 1) return {};
  const uint64_t pages = services_.region.page_count();
  auto to_lines = EpisodePages::create(
      services_.fabric, pages, {.first = words::kToLines, .bytes = words::kToLinesBytes, .runs = words::kToLinesRuns});
  if (!to_lines) return tl::unexpected(to_lines.error());
  auto wanted = SparseTable<PageId>::create(pages, "pages to move to lines");
  if (!wanted) return tl::unexpected(wanted.error());
  auto trials = LineTrials::create(pages);
  if (!trials) return tl::unexpected(trials.error());
  const LockGuard hold(wanted_lock_);
  to_lines_ = std::move(*to_lines);
  wanted_ = std::move(*wanted);
  trials_ = std::move(*trials);
  lines_ = &lines;
  return {};
}

uint32_t Driver::lines_of_page() const {
  return static_cast<uint32_t>(page_size_ / diff_format::kLine);
}

// A diff of the page has changed these lines, or none.
void Driver::consider_lines(PageId page, Record& record, ChangedLines changed) {
  if (moves_no_more_.load(std::memory_order_relaxed)) return;
  const bool wants =
      options_.to_lines == ToLines::kAtOnce
          ? changed.lines != 0 && record.lines.want()
          : record.lines.compared(changed, lines_of_page(),
                                  has_moved_to_lines(page.value - 1) || has_moved_to_lines(page.value + 1)) ||
                (should_try_lines(page, record, changed) && record.lines.want());
  if (record.awaits_lines) lost_.fetch_add(LineHistory::lost(changed), std::memory_order_relaxed);
  if (!wants || !lines_->may_take(page)) return;
  record.awaits_lines = true;
  const LockGuard hold(wanted_lock_);
  wanted_[wanted_count_++] = page;
}

// A diff of the page has changed these lines. Returns whether the page should move though what diffs change speaks against it.
bool Driver::should_try_lines(PageId page, const Record& record, ChangedLines changed) {
  const LineHistory& history = record.lines;
  if (changed.lines == 0 || history.is_wanted() || !lines_->cost(page)) return false;
  const auto cost = [this](PageId tried) { return lines_->cost(tried).value_or(0); };
  const auto has_moved = [this](PageId tried) { return has_moved_to_lines(tried.value); };
  const LockGuard hold(wanted_lock_);
  return trials_.compared(page, history.changes(), LineHistory::change_by_pages(), LineHistory::move(lines_of_page()),
                          cost, has_moved) != LineTrials::Advice::kStay;
}

// Visits the pages that may move together with this one, until `visit` returns false. Where pages have moved one after the other, those
// behind them are likely to be of the same kind, and the program is about to use them: what is allocated together is mostly used in
// that order. So these are as many pages as have moved directly before this one; at most half of what moves is of another kind then.
template <typename Visit>
void Driver::for_each_behind(PageId page, Visit&& visit) {
  const PageRange stretch = services_.homes.stretch_of(page);
  for (uint64_t more = 1; more <= kMostBehind; ++more) {
    const uint64_t before = page.value - more, behind = page.value + more;
    if (page.value < more || behind >= records_.count()) return;
    if (!stretch.contains(PageId(before)) || !stretch.contains(PageId(behind))) return;
    if (!has_moved_to_lines(before) || has_moved_to_lines(behind) || !lines_->may_take(PageId(behind))) return;
    if (!visit(PageId(behind), records_[behind])) return;
  }
}

// Asks for the homes of the pages behind those that are wanted: publish_wanted() must know them. A page that nobody has
// touched has none yet, and does not move: its home will be where it is touched first. Called with no lock held.
void Driver::learn_homes_behind_wanted() {
  for (uint64_t i = 0;; ++i) {
    PageId page;
    {
      const LockGuard hold(wanted_lock_);
      if (i >= wanted_count_) return;
      page = wanted_[i];
    }
    for_each_behind(page, [this](PageId behind, Record& record) { return learn_home(behind, record).has_value(); });
  }
}

// What there is no room for waits for the next barrier: a list that is too long would keep all nodes from moving anything.
void Driver::publish_wanted(uint64_t episode) {
  if (lines_->takes_no_more()) to_lines_->refuse();
  {
    const LockGuard hold(wanted_lock_);
    for (uint64_t published = 0; wanted_count_ != 0 && published < words::kToLinesRuns;) {
      const PageId page = wanted_[--wanted_count_];
      // Another node may have wanted it, too.
      if (has_moved_to_lines(page.value)) continue;
      to_lines_->add(page);
      for_each_behind(page, [this](PageId behind, Record& record) {
        if (!home_of(behind, record, false)) return false;
        to_lines_->add(behind);
        return true;
      });
      ++published;
    }
  }
  to_lines_->publish(episode);
}

// Homes have moved.
void Driver::apply_wanted() {
  if (const auto wanted = to_lines_->lists())
    for_each_named_run(*wanted, [this](const NoticeRun& run, std::optional<NodeId>) { move_to_lines(run); });
  else
    // A node has refused, and would go on doing so. All nodes find that at this barrier.
    moves_no_more_.store(true, std::memory_order_relaxed);
  to_lines_->forget();
}

// A page that has moved already stays as it is: a node may want it at a later barrier than another one. All nodes skip the same
// pages.
void Driver::move_to_lines(NoticeRun run) {
  for (uint64_t page = run.first.value, next; page < run.end(); page = next) {
    for (next = page; next < run.end() && next - page < kGroup && !has_moved_to_lines(next); ++next)
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
