#include "base/thread_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace multigrain {
namespace {

uint32_t self() {
  return static_cast<uint32_t>(getpid());
}

TEST(ThreadState, TheCallingThreadRuns) {
  errno = 42;
  EXPECT_EQ(thread_state(self(), static_cast<uint32_t>(gettid())).letter, 'R');
  EXPECT_EQ(errno, 42);
}

TEST(ThreadState, AThreadThatWaitsSleepsAndCountsItsSleeps) {
  std::mutex mutex;
  std::condition_variable changed;
  int wanted = 0;
  std::atomic<uint32_t> thread{0};
  std::thread sleeper([&] {
    thread = static_cast<uint32_t>(gettid());
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return wanted == 1; });
    wanted = 2;
    changed.notify_all();
    changed.wait(lock, [&] { return wanted == 3; });
  });
  const auto asleep = [&] {
    while (thread == 0 || thread_state(self(), thread).letter != 'S') std::this_thread::yield();
    return thread_state(self(), thread).switches;
  };
  const uint64_t first = asleep();
  {
    std::unique_lock lock(mutex);
    wanted = 1;
    changed.notify_all();
    changed.wait(lock, [&] { return wanted == 2; });
  }
  EXPECT_GT(asleep(), first);
  {
    const std::lock_guard lock(mutex);
    wanted = 3;
  }
  changed.notify_all();
  sleeper.join();
}

TEST(ThreadState, AThreadThatDoesNotExistHasNone) {
  errno = 42;
  const ThreadState state = thread_state(self(), 0);
  EXPECT_EQ(state.letter, 0);
  EXPECT_EQ(state.switches, 0u);
  EXPECT_EQ(errno, 42);
}

}  // namespace
}  // namespace multigrain
