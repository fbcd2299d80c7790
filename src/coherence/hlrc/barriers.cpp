// This part of the driver handles barriers of all processors, at which homes move to the nodes that write the pages (H6
// of transitions.h).
#include <algorithm>

#include "base/steps.h"
#include "coherence/hlrc/driver.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc {

void Driver::release_at_barrier() {
  if (!options_.homes_follow || nodes_ == 1) {
    if (!is_clean()) release();
    return;
  }
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(interval_lock_);
  const LockGuard one_at_a_time(interval_lock_);
  release_interval();
  const uint64_t episode = arrived_.load(std::memory_order_relaxed);
  episode_->publish(episode);
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
  NoticeReader::Timestamp timestamp;
  reader_->read_all_timestamps(known_, timestamp);
  episode_->finish(arrived - 1);
  // If one node alone has written anything, a serial part of the program has ended. That says nothing about which nodes
  // will write in the parallel parts, and pages that several nodes will write are better spread as they were placed.
  const auto lists = episode_->lists();
  const auto has_written = [](std::span<const NoticeRun> list) { return !list.empty(); };
  if (lists && std::ranges::count_if(*lists, has_written) > 1)
    for_each_run_of_one(*lists, [this](const NoticeRun& run, NodeId writer) {
      acquire_lock_.assume_held();
      move_homes(run, writer);
    });
  episode_->forget();
  apply_news(timestamp);
  left_ = arrived;
}

void Driver::move_homes(NoticeRun run, NodeId writer) {
  for (uint64_t next = run.first.value; next < run.end(); ++next) {
    Record& record = records_[next];
    if (record.home_plus_one.load(std::memory_order_relaxed) != writer.value + 1u)
      move_home(PageId(next), record, writer);
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
    on_home_comes(record.page);
    this_profile().count(Counter::kHomesMoved);
  }
}

}  // namespace multigrain::hlrc
