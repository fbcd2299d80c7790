// How a thread of the runtime waits for something that a message (or another thread) will bring.
//
// Bounded polling, then block: while it polls, the thread handles the node's messages itself, which is what makes a
// round trip cost two cache-line transfers rather than two wake-ups. When it blocks, the service thread takes over.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/futex.h"
#include "fabric/fabric.h"

namespace multigrain {

// A counter that grows when something happened. A waiter reads it, checks its condition, and sleeps only if it has not
// grown since. The lowest bit says that somebody may be asleep, so that notify() needs no system call otherwise.
class EventCount {
 public:
  // Take this before checking the condition.
  [[nodiscard]] uint32_t prepare() const { return word_.load(std::memory_order_acquire) & ~kSleeper; }

  // Announces that the condition may have changed. The change itself must be made before.
  void notify() {
    const uint32_t old = word_.fetch_add(kStep, std::memory_order_seq_cst);
    if ((old & kSleeper) != 0) {
      word_.fetch_and(~kSleeper, std::memory_order_relaxed);
      futex_wake(word_, FutexScope::kProcess);
    }
  }

  [[nodiscard]] bool changed_since(uint32_t seen) const { return prepare() != seen; }

  // Sleeps until notify() was called since `seen` was taken, or a signal arrives.
  void sleep(uint32_t seen) {
    uint32_t expected = seen;
    if (!word_.compare_exchange_strong(expected, seen | kSleeper, std::memory_order_seq_cst) &&
        expected != (seen | kSleeper))
      return;
    futex_wait(word_, seen | kSleeper, FutexScope::kProcess);
  }

 private:
  static constexpr uint32_t kSleeper = 1;
  static constexpr uint32_t kStep = 2;
  std::atomic<uint32_t> word_{0};
};

// Polls for how long before it blocks. Set at start-up from the number of processors and cores: where every processor
// has a core, long enough to cover a round trip; where they share, hardly at all.
struct WaitPolicy {
  uint64_t spin_ticks = 0;
};

// Waits until `done()` holds. Whoever makes it true calls `event.notify()` afterwards. Async-signal-safe if `done` is.
template <typename Done>
void wait_until(Fabric& fabric, const WaitPolicy& policy, EventCount& event, Done&& done) {
  if (done()) return;
  fabric.attend();
  const uint64_t start = ticks();
  while (true) {
    const unsigned handled = fabric.poll();
    if (done()) break;
    if (handled == 0) {
      if (ticks() - start >= policy.spin_ticks) {
        const uint32_t seen = event.prepare();
        if (done()) break;
        fabric.leave();
        event.sleep(seen);
        if (done()) return;
        fabric.attend();
        continue;
      }
      cpu_relax();
    }
  }
  fabric.leave();
}

}  // namespace multigrain
