// This counts the releases of a mapping domain that are under way, so that a release can wait for all that began before
// it.
//
// A release must wait not only for its own pages but for every page that another processor of the domain is releasing
// at that moment (docs/internals/architecture.md), because that processor's diff may carry this one's writes. Waiting
// until no release is under way would do, but under steady traffic that moment may never come. So page releases are
// counted in two epochs, as read-copy update counts its readers: a new epoch begins when the epoch before the current
// one has drained, and a waiter that saw epoch e is done when e+2 has begun.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/spin_lock.h"
#include "base/steps.h"
#include "fabric/wait.h"

namespace multigrain::mgs {

namespace explored {
struct DriverState;
}

class ReleaseEpochs {
 public:
  // A release that has begun this many pages waits for half of them to end. That bounds what the queues of the homes
  // must hold.
  static constexpr uint32_t kMaxPending = 512;

  // Enters `pages` pages, and returns what finish() needs for each of them.
  uint8_t begin(uint32_t pages) {
    MULTIGRAIN_LOCK_STEP(lock_);
    const LockGuard hold(lock_);
    const uint8_t slot = slot_of(epoch_);
    pending_[slot] += pages;
    total_.store(pending_[0] + pending_[1], std::memory_order_release);
    return slot;
  }

  // The release of one page is done. May be called in message handlers.
  void finish(uint8_t slot) {
    bool advanced;
    {
      MULTIGRAIN_LOCK_STEP(lock_);
      const LockGuard hold(lock_);
      changed_.mark();
      --pending_[slot];
      total_.store(pending_[0] + pending_[1], std::memory_order_release);
      advanced = advance() || pending_[0] + pending_[1] == kMaxPending / 2;
    }
    if (advanced) changed_.notify();
  }

  // Returns how many page releases are under way. Takes no lock, for fast paths.
  [[nodiscard]] uint32_t pending() const { return total_.load(std::memory_order_acquire); }

  // Returns what to pass to is_done() to wait for every release begun so far.
  uint64_t mark() {
    MULTIGRAIN_LOCK_STEP(lock_);
    const LockGuard hold(lock_);
    return epoch_;
  }
  bool is_done(uint64_t mark) {
    MULTIGRAIN_LOCK_STEP(lock_);
    const LockGuard hold(lock_);
    advance();
    return epoch_ >= mark + 2;
  }
  // Notified when is_done() may have changed.
  EventCount& changed() { return changed_; }

 private:
  friend struct explored::DriverState;

  static constexpr uint8_t slot_of(uint64_t epoch) { return static_cast<uint8_t>(epoch & 1); }

  bool advance() MG_REQUIRES(lock_) {
    bool advanced = false;
    // One round suffices if no release is pending: both slots are empty then.
    for (int i = 0; i < 2 && pending_[slot_of(epoch_ + 1)] == 0; ++i) {
      ++epoch_;
      advanced = true;
    }
    return advanced;
  }

  SpinLock lock_;
  uint64_t epoch_ MG_GUARDED_BY(lock_) = 0;
  std::array<uint32_t, 2> pending_ MG_GUARDED_BY(lock_){};
  std::atomic<uint32_t> total_{0};
  EventCount changed_;
};

}  // namespace multigrain::mgs
