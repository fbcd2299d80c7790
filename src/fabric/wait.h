// Waiting: by these functions a thread of the runtime waits for something that a message or another thread will bring.
//
// It polls for a bounded time, and then blocks. While it polls, the thread handles the node's messages itself, so that
// a round trip costs two cache-line transfers rather than two wake-ups. When it blocks, the service thread takes over.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/futex.h"
#include "base/nesting_scope.h"
#include "base/steps.h"
#include "fabric/fabric.h"
#include "profile/virtual_time.h"
#include "status/node_status.h"

namespace multigrain {

// A counter that grows when something has happened. A waiter reads it, checks its condition, and sleeps only if the
// counter has not grown since. The lowest bit says that a thread may be asleep; without it notify() needs no system
// call.
class EventCount {
 public:
  // A waiter calls this before it checks its condition.
  [[nodiscard]] uint32_t prepare() const { return word_.load(std::memory_order_acquire) & ~kSleeper; }

  // Announces that the condition may have changed. The caller has made the change itself before.
  void notify() {
    mark();
    // This comes before the count grows: a waiter that is announced in vain is woken by the growth, and says so.
    virtual_time::announce(this, when_.load(std::memory_order_relaxed));
    const uint32_t old = word_.fetch_add(kStep, std::memory_order_seq_cst);
    if ((old & kSleeper) != 0) {
      word_.fetch_and(~kSleeper, std::memory_order_relaxed);
      // In virtual time this costs nothing: the emulated processors have cores of their own, and poll.
      const virtual_time::Unaccounted wake;
      futex_wake(word_, FutexScope::kProcess);
      ++wakes();
    }
  }

  // How often the calling thread has woken others. The count wraps.
  [[nodiscard]] static uint64_t wakes_by_this_thread() { return wakes(); }

  // Records when the change happens in virtual time. Where a waiter may see the change without notify(), the caller
  // calls this before it makes the change.
  void mark() {
    if (virtual_time::on()) when_.store(virtual_time::stamp(), std::memory_order_relaxed);
  }

  // The virtual time of the last mark() or notify(), at which the event that a waiter waits for happened
  // (virtual_time.h, V2).
  [[nodiscard]] const std::atomic<Nanoseconds>& when() const { return when_; }

  [[nodiscard]] bool changed_since(uint32_t seen) const { return prepare() != seen; }

  // Sleeps until notify() has been called since `seen` was read, or a signal arrives.
  void sleep(uint32_t seen) {
    if (virtual_time::takes_turns()) {
      // No other participant runs meanwhile. What another thread announces between this look and the wait ends the wait
      // (ordered::Participant::was_made_ready).
      if (!changed_since(seen)) ordered::wait();
      return;
    }
    uint32_t expected = seen;
    if (!word_.compare_exchange_strong(expected, seen | kSleeper, std::memory_order_seq_cst) &&
        expected != (seen | kSleeper))
      return;
    futex_wait(word_, seen | kSleeper, FutexScope::kProcess);
  }

 private:
  static uint64_t& wakes() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local uint64_t count = 0;
    return count;
  }

  static constexpr uint32_t kSleeper = 1;
  static constexpr uint32_t kStep = 2;
  std::atomic<uint32_t> word_{0};
  std::atomic<Nanoseconds> when_{0};
};

// Says how long a waiter polls before it blocks. It is set at start-up from the number of processors and cores: where
// every processor has a core, long enough to cover a round trip; where processors share cores, hardly at all.
struct WaitPolicy {
  uint64_t spin_ticks = 0;
};

// Whether the calling thread runs a program's code that polls (Fabric::begin_computing). Its waits say when they sleep.
class Computing {
 public:
  static void begin(Fabric& fabric) {
    if (std::exchange(flag(), true)) return;
    fabric.begin_computing();
  }
  static void end(Fabric& fabric) {
    if (std::exchange(flag(), false)) fabric.end_computing();
  }
  [[nodiscard]] static bool on() { return flag(); }

 private:
  // Initial-exec, because the fault handler uses it, where a first access must not allocate.
  static bool& flag() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local bool computes = false;
    return computes;
  }
};

// While it lives, the calling thread counts as polling: senders leave the node's messages to it
// (Fabric::begin_polling). A thread begins a scope before it sends a request that it will wait for: a node that answers
// at once then finds a thread that polls, and need not wake the service thread.
//
// A thread has one at a time: a wait that blocks pauses its own scope, and an outer scope that still counted would make
// senders believe that a thread polls. So a scope may not live across a call that waits by itself, nor for longer than
// a few microseconds without a poll.
class PollingScope {
 public:
  explicit PollingScope(Fabric& fabric) : fabric_(fabric) { fabric_.begin_polling(); }
  ~PollingScope() {
    if (counted_)
      fabric_.end_polling();
    else if (Computing::on())
      fabric_.begin_computing();
  }
  PollingScope(const PollingScope&) = delete;
  PollingScope& operator=(const PollingScope&) = delete;

  [[nodiscard]] Fabric& fabric() const { return fabric_; }
  void pause() {
    counted_ = false;
    if (Computing::on()) fabric_.end_computing();
    fabric_.end_polling();
  }
  void resume() {
    if (counted_) return;
    fabric_.begin_polling();
    if (Computing::on()) fabric_.begin_computing();
    counted_ = true;
  }

 private:
  Fabric& fabric_;
  bool counted_ = true;
};

// Returns whether there is nothing to wait for. In virtual time the caller goes on no earlier than the event happened,
// even if it does not have to wait for it.
template <typename Done>
[[nodiscard]] bool already_satisfied(const EventCount& event, Done& done) {
  if (!done()) return false;
  virtual_time::advance(event.when().load(std::memory_order_relaxed));
  return true;
}

// While it exists, waits of the calling thread leave the node's messages to other threads. It is for a thread that
// handlers may have to wait for, such as a thread that has published a hazard.
using NoHandlersScope = NestingScope<struct NoHandlersTag>;

// Waits until `done()` holds. The thread that makes it true calls `event.notify()` afterwards. This is
// async-signal-safe if `done` is.
template <typename Done>
void wait_until(PollingScope& polling, const WaitPolicy& policy, EventCount& event, Done&& done) {
  if (already_satisfied(event, done)) return;
  virtual_time::Wait virtual_wait(&event, event.when());
  // An earlier wait in the same scope may have ended asleep.
  polling.resume();
  const uint64_t start = ticks();
  Nanoseconds since = 0;
  while (true) {
    const bool elsewhere = NoHandlersScope::on();
    const unsigned handled = elsewhere ? 0 : polling.fabric().poll();
    if (done()) return;
    if (handled != 0) continue;
    if (!elsewhere && ticks() - start < policy.spin_ticks) {
      cpu_relax();
      continue;
    }
    MULTIGRAIN_WAIT_STEP(event);
    const uint32_t seen = event.prepare();
    if (done()) return;
    polling.pause();
    virtual_wait.again();
    {
      const SleepScope asleep(since);
      MULTIGRAIN_SLEEP_STEP(event);
      event.sleep(seen);
    }
    if (done()) return;
    polling.resume();
  }
}

// Does the same for a thread that has no PollingScope yet because it has not just sent a request.
template <typename Done>
void wait_until(Fabric& fabric, const WaitPolicy& policy, EventCount& event, Done&& done) {
  if (already_satisfied(event, done)) return;
  PollingScope polling(fabric);
  wait_until(polling, policy, event, std::forward<Done>(done));
}

}  // namespace multigrain
