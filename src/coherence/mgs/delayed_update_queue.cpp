#include "coherence/mgs/delayed_update_queue.h"

#include "profile/virtual_time.h"

namespace multigrain::mgs {

Status DelayedUpdateQueue::create(uint64_t capacity) {
  auto ring = SparseTable<PageId>::create(capacity, "entries of the delayed update queue");
  if (!ring) return tl::unexpected(ring.error());
  const LockGuard hold(lock_);
  capacity_ = capacity;
  ring_ = std::move(*ring);
  return {};
}

void DelayedUpdateQueue::push(PageId page) {
  virtual_time::spend(&MachineCosts::queue_page);
  MULTIGRAIN_LOCK_STEP(lock_);
  const LockGuard hold(lock_);
  const uint64_t gone = head_ - base_;
  if (head_ == tail_) {
    base_ = tail_;
  } else if (gone >= kCompactAt && gone >= tail_ - head_) {
    // Moves the entries to the front, because a queue that never runs empty must not grow for ever. Each entry moves at
    // most as often as an entry is popped.
    for (uint64_t i = 0; i < tail_ - head_; ++i) ring_[i] = ring_[gone + i];
    base_ = head_;
  }
  MG_CHECK(tail_ - base_ < capacity_);
  ring_[tail_ - base_] = page;
  ++tail_;
  size_.store(tail_ - head_, std::memory_order_release);
}

uint64_t DelayedUpdateQueue::pushed() {
  MULTIGRAIN_LOCK_STEP(lock_);
  const LockGuard hold(lock_);
  return tail_;
}

size_t DelayedUpdateQueue::pop(uint64_t limit, std::span<PageId> pages, ReleaseEpochs& releases, uint8_t& slot) {
  MULTIGRAIN_LOCK_STEP(lock_);
  const LockGuard hold(lock_);
  size_t n = 0;
  while (n < pages.size() && head_ < limit) pages[n++] = ring_[head_++ - base_];
  if (n != 0) slot = releases.begin(static_cast<uint32_t>(n));
  MULTIGRAIN_STEP(&size_);
  size_.store(tail_ - head_, std::memory_order_release);
  return n;
}

}  // namespace multigrain::mgs
