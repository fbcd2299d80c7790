// The delayed update queue ([MGS], section 3.2) has the pages that a mapping domain has written since it released them,
// oldest first.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "base/steps.h"
#include "coherence/mgs/release_epochs.h"
#include "memory/sparse_table.h"

namespace multigrain::mgs {

// A page is listed at least once while the transitions say that it is queued. An entry may be stale, which on_release()
// finds out. Any thread may use the queue; everything but create() is async-signal-safe.
class DelayedUpdateQueue {
 public:
  Status create(uint64_t capacity);
  void push(PageId page);
  // Returns how many entries were ever pushed, which pop() takes as its limit.
  uint64_t pushed();
  // Takes up to pages.size() of the entries that were pushed before `limit`, and returns how many it took. They count
  // in the release epochs, under `slot`, before another thread can see that they are gone: at every moment a written
  // page is in the queue, in an epoch, or released.
  size_t pop(uint64_t limit, std::span<PageId> pages, ReleaseEpochs& releases, uint8_t& slot);
  [[nodiscard]] bool empty() const {
    MULTIGRAIN_STEP(&size_);
    return size_.load(std::memory_order_acquire) == 0;
  }

 private:
  friend struct explored::DriverState;

  static constexpr uint64_t kCompactAt = 4096;

  SpinLock lock_;
  SparseTable<PageId> ring_ MG_GUARDED_BY(lock_);
  uint64_t capacity_ MG_GUARDED_BY(lock_) = 0;
  uint64_t head_ MG_GUARDED_BY(lock_) = 0;  // all entries pushed before it are popped
  uint64_t tail_ MG_GUARDED_BY(lock_) = 0;
  uint64_t base_ MG_GUARDED_BY(lock_) = 0;  // the entry that ring_[0] stands for
  std::atomic<uint64_t> size_{0};           // written with the lock held
};

}  // namespace multigrain::mgs
