#include "guest/nodes/thread_profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "profile/this_thread.h"

namespace multigrain::guest {

namespace {

// A thread that the program has joined still has to leave its processor.
constexpr std::chrono::seconds kPatience{10};

}  // namespace

ThreadProfiles::ThreadProfiles(const Config& config)
    : node_(config.node),
      processors_(config.processors_per_node),
      taken_(config.processors_per_node),
      counted_(std::make_unique<NodeReport>()) {}

int ThreadProfiles::take_processor() {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  const LockGuard hold(lock_);
  while (true) {
    const auto found = std::ranges::find(taken_, false);
    if (found != taken_.end()) {
      *found = true;
      return static_cast<int>(found - taken_.begin());
    }
    if (!freed_.wait_until(lock_, until))
      die(1, {fmt::format(
                  "in virtual time each thread of the program needs a processor of its own, and node {} has {}, all "
                  "of which run threads: give --procs-per-node more",
                  node_.value, processors_)
                  .c_str()});
  }
}

// The runtime has made the process's first thread the first processor already.
void ThreadProfiles::begin_first(pid_t tid) {
  const int processor = virtual_time::on() ? take_processor() : -1;
  begin(tid, ThreadRow::Kind::kThread, processor, Category::kUser);
}

void ThreadProfiles::begin_thread(pid_t tid, Nanoseconds when) {
  const int processor = virtual_time::on() ? take_processor() : -1;
  if (processor >= 0) {
    virtual_time::adopt(static_cast<unsigned>(processor));
    virtual_time::begin_function(when);
  }
  begin(tid, ThreadRow::Kind::kThread, processor, Category::kUser);
}

void ThreadProfiles::begin_shadow() {
  begin(0, ThreadRow::Kind::kShadows, -1, Category::kIdle);
}

void ThreadProfiles::begin(pid_t tid, ThreadRow::Kind kind, int processor, Category category) {
  const LockGuard hold(lock_);
  Live& live = live_.emplace_back();
  live.tid = tid;
  live.kind = kind;
  live.processor = processor;
  set_this_profile(live.profile);
  live.profile.start(category);
}

void ThreadProfiles::end() {
  this_profile().stop();
  const LockGuard hold(lock_);
  const auto own = std::ranges::find(live_, &this_profile(),
                                     [](const Live& live) -> const ProcessorProfile* { return &live.profile; });
  if (own == live_.end()) return;
  ProfileSnapshot profile;
  own->profile.snapshot(profile);
  add_counters(*counted_, profile);
  add_to(ended_, row_of(*own, profile));
  give_back_this_profile();
  if (own->processor >= 0) {
    virtual_time::end_function();
    taken_[static_cast<size_t>(own->processor)] = false;
    freed_.notify_one();
  }
  live_.erase(own);
}

ThreadRow ThreadProfiles::row_of(const Live& live, const ProfileSnapshot& profile) const {
  ThreadRow row = make_row(profile, time_stamps_per_us());
  row.kind = live.kind;
  row.node = node_.value;
  row.tid = live.kind == ThreadRow::Kind::kThread ? live.tid : 0;
  return row;
}

// Shadows have one row together, and so have threads that are too many.
void ThreadProfiles::add_to(std::vector<ThreadRow>& rows, const ThreadRow& row) {
  ThreadRow added = row;
  if (added.kind == ThreadRow::Kind::kThread) {
    if (rows.size() < kMaxRows) {
      rows.push_back(added);
      return;
    }
    added.kind = ThreadRow::Kind::kEarlier;
    added.tid = 0;
  }
  const auto same = std::ranges::find(rows, added.kind, &ThreadRow::kind);
  if (same == rows.end())
    rows.push_back(added);
  else
    add_row(*same, added);
}

std::vector<ThreadRow> ThreadProfiles::report(NodeReport& report, Nanoseconds when) {
  const LockGuard hold(lock_);
  std::vector<ThreadRow> rows = ended_;
  for (size_t i = 0; i < kCounterCount; ++i) report.counters[i] += counted_->counters[i];
  for (size_t i = 0; i < kMessageTypes; ++i) {
    report.messages[i] += counted_->messages[i];
    report.message_bytes[i] += counted_->message_bytes[i];
  }
  for (const Live& live : live_) {
    ProfileSnapshot profile;
    if (live.processor >= 0) {
      // Node::take_snapshots() does the same.
      const uint64_t at = std::max(when, virtual_time::clock_of(static_cast<unsigned>(live.processor)));
      live.profile.snapshot_at(profile, &at);
    } else {
      live.profile.snapshot(profile);
    }
    add_counters(report, profile);
    add_to(rows, row_of(live, profile));
  }
  return rows;
}

}  // namespace multigrain::guest
