// The pages that this node has opened at home while no processor of another node ran: while a program initialises its
// data, as most do on one processor.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "coherence/hlrc/write_notices.h"
#include "memory/sparse_table.h"

namespace multigrain::hlrc {

class SerialPages {
 public:
  // There is room for so many runs of pages. Pages that come when the room is used up are not noted.
  static constexpr uint64_t kRuns = uint64_t{1} << 16;

  Status create() {
    auto made = SparseTable<NoticeRun>::create(kRuns, "pages opened in the serial part");
    if (!made) return tl::unexpected(made.error());
    runs_ = std::move(*made);
    return {};
  }

  // Notes pages that processors of this node may write from now on. Any thread; async-signal-safe.
  void add(NoticeRun run) {
    if (!is_serial_.load(std::memory_order_relaxed)) return;
    const LockGuard hold(lock_);
    if (size_ != 0 && runs_[size_ - 1].end() == run.first.value)
      runs_[size_ - 1].count += run.count;
    else if (size_ != kRuns)
      runs_[size_++] = run;
  }
  // Ends the serial part, and returns the runs that were noted, joined and in ascending order. They are valid as long as
  // this object. Empty if the part has ended before. One thread at a time.
  std::span<const NoticeRun> end() {
    if (!is_serial_.exchange(false)) return {};
    const LockGuard hold(lock_);
    return size_ == 0 ? std::span<const NoticeRun>{} : join_runs({&runs_[0], size_});
  }

 private:
  friend struct Explored;  // tests/coherence/hlrc_driver_state.h
  std::atomic<bool> is_serial_{true};
  SpinLock lock_;
  uint64_t size_ MG_GUARDED_BY(lock_) = 0;
  SparseTable<NoticeRun> runs_;
};

}  // namespace multigrain::hlrc
