// This is a thread of a guest that uses futexes as C libraries do: for a mutex, and for a condition variable.
#pragma once

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <random>

#include "futex_machine.h"

namespace multigrain::testing {

inline uint64_t address_of(const std::atomic<uint32_t>& word) {
  return reinterpret_cast<uint64_t>(&word);
}

// This says how a thread waits.
struct Manner {
  const char* name;
  bool has_timeouts = false;
  bool is_interrupted = false;
};

class FutexThread final : public FutexCaller {
 public:
  FutexThread(Futexes& futexes, const Manner& manner, unsigned seed)
      : futexes_(futexes), manner_(manner), random_(seed) {}

  long sleep(std::atomic<uint32_t>& word, uint32_t expected, const timespec* deadline, bool realtime) override {
    // This is the answer if a signal had come before.
    if (manner_.is_interrupted && random_() % 8 == 0) return -512;
    return FutexCaller::sleep(word, expected, deadline, realtime);
  }

  long wait(std::atomic<uint32_t>& word, uint32_t value) {
    long result = 0;
    if (manner_.has_timeouts && random_() % 2 == 0) {
      const auto nanoseconds = static_cast<long>(random_() % 100'000);
      if (random_() % 2 == 0) {
        const timespec time{0, nanoseconds};
        result = futexes_.call(*this, address_of(word), FUTEX_WAIT_PRIVATE, value, &time, 0, 0, 0);
      } else {
        const bool is_realtime = random_() % 2 == 0;
        timespec time{};
        clock_gettime(is_realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC, &time);
        time.tv_nsec += nanoseconds;
        time.tv_sec += time.tv_nsec / 1'000'000'000;
        time.tv_nsec %= 1'000'000'000;
        result = futexes_.call(*this, address_of(word), FUTEX_WAIT_BITSET | (is_realtime ? FUTEX_CLOCK_REALTIME : 0),
                               value, &time, 0, 0, FUTEX_BITSET_MATCH_ANY);
      }
    } else {
      result = futexes_.call(*this, address_of(word), FUTEX_WAIT, value, nullptr, 0, 0, 0);
    }
    if (result == 0) ++woken;
    const bool may_be = result == 0 || result == -EAGAIN || (result == -ETIMEDOUT && manner_.has_timeouts) ||
                        ((result == -EINTR || result == -512) && manner_.is_interrupted);
    if (!may_be) ++wrong;
    return result;
  }
  long wake(std::atomic<uint32_t>& word, uint32_t count) {
    const long result = futexes_.call(*this, address_of(word), FUTEX_WAKE, count, nullptr, 0, 0, 0);
    if (result < 0 || result > static_cast<long>(count)) ++wrong;
    wakes += result;
    return result;
  }

  // This is glibc's lowlevellock.
  void lock(std::atomic<uint32_t>& word) {
    uint32_t free = 0;
    if (!word.compare_exchange_strong(free, 1)) lock_wanted(word);
  }
  void lock_wanted(std::atomic<uint32_t>& word) {
    while (word.exchange(2) != 0) wait(word, 2);
  }
  void unlock(std::atomic<uint32_t>& word) {
    if (word.exchange(0) == 2) wake(word, 1);
  }

  // This is a condition variable that moves its waiters to the mutex.
  void cond_wait(std::atomic<uint32_t>& cond, std::atomic<uint32_t>& mutex) {
    const uint32_t seen = cond.load();
    unlock(mutex);
    wait(cond, seen);
    lock_wanted(mutex);
  }
  void broadcast(std::atomic<uint32_t>& cond, std::atomic<uint32_t>& mutex) {
    const uint32_t now = cond.fetch_add(1) + 1;
    const long result =
        futexes_.call(*this, address_of(cond), FUTEX_CMP_REQUEUE, 1, nullptr, INT_MAX, address_of(mutex), now);
    if (result == -EAGAIN) {
      wake(cond, INT_MAX);
      return;
    }
    if (result < 0) ++wrong;
    // The thread counts the one that it wakes. The thread that unlocks counts the others.
    if (result > 0) ++wakes;
  }

  long woken = 0;
  long wakes = 0;
  unsigned wrong = 0;

 private:
  Futexes& futexes_;
  const Manner manner_;
  std::mt19937 random_;
};

struct alignas(64) FutexWords {
  std::atomic<uint32_t> mutex{0};
  std::atomic<uint32_t> cond{0};
  // The mutex guards this. It is not atomic, so that ThreadSanitizer sees whether the mutex excludes.
  uint64_t counter = 0;
  unsigned arrived = 0;
  unsigned round = 0;
};

// This adds up the calls of all threads.
struct FutexTally {
  std::atomic<long> wakes_less_woken{0};
  std::atomic<unsigned> wrong{0};
};

// Runs one of `all` threads that count under the mutex, and meet at a barrier that the condition variable makes.
inline void count_and_meet(Futexes& futexes, FutexWords& words, FutexTally& tally, unsigned all, unsigned number,
                           unsigned rounds, const Manner& manner) {
  FutexThread thread(futexes, manner, number + 1);
  for (unsigned round = 1; round <= rounds; ++round) {
    for (unsigned k = 0; k < 5; ++k) {
      thread.lock(words.mutex);
      ++words.counter;
      thread.unlock(words.mutex);
    }
    thread.lock(words.mutex);
    if (++words.arrived == all) {
      words.arrived = 0;
      words.round = round;
      thread.broadcast(words.cond, words.mutex);
    }
    while (words.round < round) thread.cond_wait(words.cond, words.mutex);
    if (words.counter < uint64_t{5} * all * round) ++tally.wrong;
    thread.unlock(words.mutex);
  }
  tally.wakes_less_woken += thread.wakes - thread.woken;
  tally.wrong += thread.wrong;
}

inline void expect_exact(const FutexWords& words, const FutexTally& tally, unsigned all, unsigned rounds) {
  EXPECT_EQ(words.counter, uint64_t{5} * all * rounds);
  // Each wait that returned 0 was counted by one wake, and each wake that was counted let a wait return 0.
  EXPECT_EQ(tally.wakes_less_woken.load(), 0);
  EXPECT_EQ(tally.wrong.load(), 0u);
}

}  // namespace multigrain::testing
