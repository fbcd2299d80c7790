// This part of the driver handles barriers of all processors, at which homes move to the nodes that write the pages (H6
// of transitions.h).
#include <algorithm>
#include <utility>

#include "base/steps.h"
#include "coherence/hlrc/driver.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

void Driver::release_at_barrier() {
  if (nodes_ == 1 || (!options_.homes_follow && !gathers_at_barrier() && is_clean())) return;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  if (exchanges_wanted()) learn_homes_behind_wanted();
  MULTIGRAIN_LOCK_STEP(interval_lock_);
  const LockGuard one_at_a_time(interval_lock_);
  at_barrier_ = true;
  release_interval();
  at_barrier_ = false;
  const uint64_t episode = arrived_.load(std::memory_order_relaxed);
  episode_ends_[episode % kRecently] = intervals_.load(std::memory_order_relaxed);
  if (options_.homes_follow && !gathers_at_barrier()) episode_->publish(episode);
  if (exchanges_wanted()) publish_wanted(episode);
  lost_.store(0, std::memory_order_relaxed);
  arrived_.store(episode + 1, std::memory_order_release);
}

// The first of the node's processors to leave the barrier does all of this. Homes move before the notices are applied,
// because those may come from a node that has left the barrier already, and has written pages in place that are at home
// there now.
void Driver::acquire_at_barrier() {
  if (nodes_ == 1) return;
  if (!options_.homes_follow && !gathers_at_barrier()) return acquire_all();
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  const uint64_t arrived = arrived_.load(std::memory_order_acquire);
  if (left_ == arrived) return;
  const bool gathers = gathers_at_barrier();
  if (gathers && gathered_->has_all()) {
    acquire_gathered();
    left_ = arrived;
    return;
  }
  // If there was no room for all that would have been gathered, every node finds that. No home moves then, and each reads all logs.
  if (!gathers) episode_->start(arrived - 1);
  if (exchanges_wanted()) to_lines_->start(arrived - 1);
  NoticeReader::Timestamp timestamp(nodes_);
  reader_->read_all_timestamps(known_, timestamp);
  if (!gathers) episode_->finish(arrived - 1);
  if (exchanges_wanted()) to_lines_->finish(arrived - 1);
  // If one node alone has written anything, a serial part of the program has ended. That says nothing about which nodes
  // will write in the parallel parts, and pages that several nodes will write are better spread as they were placed.
  const auto lists = episode_->lists();
  const auto has_written = [](std::span<const NoticeRun> list) { return !list.empty(); };
  if (lists && std::ranges::count_if(*lists, has_written) > 1)
    for_each_named_run(*lists, [this](const NoticeRun& run, std::optional<NodeId> writer) {
      acquire_lock_.assume_held();
      move_homes(run, writer);
    });
  episode_->forget();
  if (exchanges_wanted()) apply_wanted();
  leaves_barrier_ = true;
  apply_news(timestamp);
  leaves_barrier_ = false;
  if (gathers) gathered_->forget();
  left_ = arrived;
}

// --- Notices that are gathered along the barrier's tree (gathered_notices.h). The last processor of the node to arrive does this.

void Driver::gather_at_barrier(std::span<const NodeId> children) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  gathered_->gather({.runs = episode_->own(), .position = known(self_)}, children);
}

void Driver::learn_at_barrier(NodeId parent, bool spreads) {
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  MULTIGRAIN_LOCK_STEP(acquire_lock_);
  const LockGuard one_at_a_time(acquire_lock_);
  gathered_->learn(parent, spreads);
}

void Driver::acquire_gathered() {
  if (options_.homes_follow && gathered_->writers() > 1)
    gathered_->for_each_run([this](const NoticeRun& run, std::optional<NodeId> writer) {
      acquire_lock_.assume_held();
      move_homes(run, writer);
    });
  episode_->forget();
  leaves_barrier_ = true;
  apply_gathered();
  leaves_barrier_ = false;
  gathered_->forget();
}

// Of the nodes of which this one does not know all, it applies what they have named since the last barrier.
void Driver::apply_gathered() {
  const NodeSet news = nodes_with_news(gathered_->time(), known_, self_, nodes_);
  if (news.empty()) return;
  begin_epoch();
  keeps_used_ = true;
  invalidate_runs(gathered_->notices_for(self_, news));
  news.for_each([&](NodeId node)
                    MG_NO_THREAD_SAFETY_ANALYSIS { raise_timestamp(node, gathered_->time()[node.value]); });
}

// --- Homes

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
  if (leaves || writer == self_) virtual_time::spend(&MachineCosts::transition);
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

}  // namespace multigrain::hlrc
