// This is a lock for critical sections of a few microseconds inside the runtime. The fault handler may take it, so it
// is never held while user code runs or while waiting for another node.
//
// It spins for a bounded time, then uses a futex: with 32 processors on two cores the holder is often not running. Where
// threads take turns (emulation/ordered_execution.h), the holder may have given its turn away, and gets it again only if
// the thread that wants the lock does so, too (on_held_lock()).
#pragma once

#include <atomic>

#include "base/futex.h"
#include "base/lock_guard.h"
#include "base/thread_annotations.h"

namespace multigrain {

// A thread that finds a lock held calls this function, if there is one. It returns true if the thread has let others go on
// meanwhile, and should look again; false if the thread should wait for the lock as ever. Async-signal-safe.
using WhileLockIsHeld = bool (*)();
namespace internal {
inline constinit std::atomic<WhileLockIsHeld> g_while_lock_is_held{nullptr};
}
// Sets that function, for SpinLocks and not for MachineSpinLocks. Called once, at start-up.
inline void on_held_lock(WhileLockIsHeld function) {
  internal::g_while_lock_is_held.store(function, std::memory_order_release);
}

template <FutexScope kScope>
class MG_CAPABILITY("spin lock") BasicSpinLock {
 public:
  void lock() MG_ACQUIRE() {
    uint32_t expected = kFree;
    if (word_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) return;
    lock_slowly();
  }
  bool try_lock() MG_TRY_ACQUIRE(true) {
    uint32_t expected = kFree;
    return word_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire);
  }
  void unlock() MG_RELEASE() {
    if (word_.exchange(kFree, std::memory_order_release) == kContended) futex_wake(word_, kScope, 1);
  }
  // Returns whether a thread holds the lock, or has held it a moment ago.
  [[nodiscard]] bool is_locked() const { return word_.load(std::memory_order_acquire) != kFree; }
  // Tells Clang's analysis, where it cannot see it, that the calling thread holds the lock. Does nothing else.
  void assume_held() const MG_ASSUMES_HELD() {}

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;  // held, and a thread may sleep
  static constexpr int kSpins = 200;

  void lock_slowly() {
    for (int i = 0; i < kSpins; ++i) {
      uint32_t expected = kFree;
      if (word_.load(std::memory_order_relaxed) == kFree &&
          word_.compare_exchange_weak(expected, kHeld, std::memory_order_acquire))
        return;
      cpu_relax();
    }
    if constexpr (kScope == FutexScope::kProcess) {
      const WhileLockIsHeld let_others = internal::g_while_lock_is_held.load(std::memory_order_acquire);
      while (let_others != nullptr && let_others()) {
        uint32_t expected = kFree;
        if (word_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) return;
      }
    }
    // Drepper, "Futexes are tricky", mutex2: once contended, a taker cannot know that it is the last sleeper.
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree) futex_wait(word_, kContended, kScope);
  }

  std::atomic<uint32_t> word_{kFree};
};

using SpinLock = BasicSpinLock<FutexScope::kProcess>;
// This is for memory that several nodes map.
using MachineSpinLock = BasicSpinLock<FutexScope::kMachine>;

}  // namespace multigrain
