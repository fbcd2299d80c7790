// These test SpinLock, the futex calls and EventCount, with which threads of a node wait. A lost wake-up shows as a
// test that hangs until its time limit.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "base/spin_lock.h"
#include "fabric/wait.h"

namespace multigrain {
namespace {

TEST(FutexTest, ReturnsAtOnceWhenTheWordDiffers) {
  std::atomic<uint32_t> word{1};
  errno = EBADF;
  futex_wait(word, 0, FutexScope::kProcess);
  EXPECT_EQ(errno, EBADF) << "a fault handler must leave errno alone";
}

TEST(FutexTest, ReturnsAfterItsTimeout) {
  std::atomic<uint32_t> word{0};
  const Nanoseconds start = monotonic_ns();
  futex_wait(word, 0, FutexScope::kProcess, 1'000'000);
  EXPECT_GE(monotonic_ns() - start, 1'000'000u);
}

TEST(FutexTest, WakesASleeper) {
  for (FutexScope scope : {FutexScope::kProcess, FutexScope::kMachine}) {
    std::atomic<uint32_t> word{0};
    std::thread sleeper([&] {
      while (word.load() == 0) futex_wait(word, 0, scope);
    });
    word.store(1);
    futex_wake(word, scope);
    sleeper.join();
  }
}

TEST(SpinLockTest, TryLockFailsWhileHeld) {
  SpinLock lock;
  ASSERT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

TEST(SpinLockTest, ExcludesManyMoreThreadsThanCores) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 5000;
  SpinLock lock;
  uint64_t counter = 0;  // not atomic: only the lock protects it
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        std::lock_guard guard(lock);
        const uint64_t seen = counter;
        if (i % 100 == 0) std::this_thread::yield();  // the holder gives up its core, so the others must sleep
        counter = seen + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, uint64_t{kThreads} * kRounds);
}

TEST(EventCountTest, KnowsWhatHappenedSince) {
  EventCount event;
  const uint32_t seen = event.prepare();
  EXPECT_FALSE(event.changed_since(seen));
  event.notify();
  EXPECT_TRUE(event.changed_since(seen));
  event.sleep(seen);  // returns at once
  EXPECT_FALSE(event.changed_since(event.prepare()));
}

TEST(EventCountTest, NoWakeUpIsLostBetweenTwoThreads) {
  constexpr uint32_t kTurns = 20000;
  EventCount event;
  std::atomic<uint32_t> turn{0};
  const auto play = [&](uint32_t mine) {
    for (uint32_t i = mine; i < kTurns; i += 2) {
      while (true) {
        const uint32_t seen = event.prepare();
        if (turn.load() == i) break;
        event.sleep(seen);
      }
      turn.store(i + 1);
      event.notify();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn.load(), kTurns);
}

TEST(EventCountTest, OneNotifyWakesEverySleeper) {
  EventCount event;
  std::atomic<bool> open{false};
  std::atomic<int> through{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const uint32_t seen = event.prepare();
        if (open.load()) break;
        event.sleep(seen);
      }
      through.fetch_add(1);
    });
  }
  std::this_thread::yield();
  open.store(true);
  event.notify();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(through.load(), 8);
}

}  // namespace
}  // namespace multigrain
