// These test clocks, waits and the bound between processors, with threads of one process as the processors of one node.
// Times of work are those of this machine, so only their order is asserted.
#include "profile/virtual_time.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "fabric/wait.h"
#include "profile/this_thread.h"

namespace multigrain {
namespace {

constexpr unsigned kProcessors = 4;
constexpr Nanoseconds kSkew = 1'000'000;
constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr Nanoseconds kCheck = 50'000;
constexpr unsigned kScale = 10;  // of the program's code; that of the rest is 1

std::array<virtual_time::ProcessorClock, kProcessors> g_clocks{};
std::atomic<uint32_t> g_sleepers{0};
std::array<ProcessorProfile, kProcessors> g_profiles;

class VirtualTimeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    virtual_time::start({.processors = g_clocks, .sleepers = &g_sleepers, .order = {}},
                        {.scale = kScale, .check_ns = kCheck, .skew_ns = kSkew, .processors = kProcessors});
  }

  // Runs a function on each of the first processors, all beginning at the same virtual time.
  template <typename... Functions>
  void run(Functions&&... functions) {
    const Nanoseconds begin = next_;
    std::vector<std::thread> threads;
    unsigned processor = 0;
    for (unsigned i = 0; i < sizeof...(functions); ++i) virtual_time::hand_over(i, begin);
    (threads.emplace_back([begin, processor = processor++, function = std::forward<Functions>(functions)] {
      set_this_profile(g_profiles[processor]);
      virtual_time::adopt(processor);
      virtual_time::begin_function(begin);
      this_profile().start();
      function();
      this_profile().stop();
      virtual_time::end_function();
    }),
     ...);
    for (std::thread& thread : threads) thread.join();
    for (const auto& clock : g_clocks) next_ = std::max(next_, clock.published.load() + kSecond);
    EXPECT_EQ(g_sleepers.load(), 0u);
  }

  // The processor must have stopped.
  static uint64_t time_in(unsigned processor, Category category) {
    ProfileSnapshot profile;
    g_profiles[processor].snapshot(profile);
    return profile.ticks[static_cast<size_t>(category)];
  }

  // Clocks never go back, so each run begins after the last.
  static inline Nanoseconds next_ = kSecond;
};

TEST(Lateness, IsTheSameEveryTimeAndOtherwiseAnywhereUpToTheMost) {
  constexpr unsigned kEach = 4000;
  constexpr Nanoseconds kMost = 3;
  std::array<unsigned, kMost + 1> often{};
  unsigned same = 0;
  for (unsigned i = 0; i < kEach; ++i) {
    const virtual_time::Perturbation seeded{.seed = i / 100, .most = kMost};
    const Nanoseconds late = virtual_time::lateness(seeded, i % 100, 1);
    ASSERT_LE(late, kMost);
    ASSERT_EQ(late, virtual_time::lateness(seeded, i % 100, 1));
    ++often[late];
    if (late == virtual_time::lateness(seeded, i % 100, 2)) ++same;
  }
  // Five standard deviations.
  for (const unsigned count : often) EXPECT_NEAR(count, kEach / 4, 140);
  EXPECT_NEAR(same, kEach / 4, 140) << "another phase does not have other lengths";
  EXPECT_EQ(virtual_time::lateness({.seed = 7, .most = 0}, 1, 0), 0u);
  EXPECT_LE(virtual_time::lateness({.seed = 7, .most = 1'000'000'000}, 1, 0), 1'000'000'000u);
}

void work() {
  const Nanoseconds end = virtual_time::now() + 200'000;
  while (virtual_time::now() < end) {
  }
}

// This does the same, but the program does not look at its clock.
void work_unseen() {
  const Nanoseconds end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + 200'000;
  while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

// The time of a node that handles nothing else.
class AllFree final : public virtual_time::HandlerTime {
 public:
  Nanoseconds take(Nanoseconds from, Nanoseconds length) override { return from + length; }
};

// This waits as fabric/wait.h does, without a fabric.
void wait_for(EventCount& event, const std::atomic<bool>& done) {
  if (done.load(std::memory_order_acquire)) {
    virtual_time::advance(event.when());
    return;
  }
  virtual_time::Wait wait(&event, event.when());
  while (!done.load(std::memory_order_acquire)) {
    const uint32_t seen = event.prepare();
    if (done.load(std::memory_order_acquire)) return;
    wait.again();
    event.sleep(seen);
  }
}

TEST_F(VirtualTimeTest, AClockGrowsWithWorkAndStandsInSleep) {
  run([] {
    const Nanoseconds start = virtual_time::now();
    work();
    EXPECT_GE(virtual_time::now(), start + 200'000);
    const Nanoseconds before = virtual_time::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LT(virtual_time::now() - before, 40'000'000u);
  });
}

TEST_F(VirtualTimeTest, WhoWaitsGoesOnAtTheTimeOfWhatItWaitedFor) {
  EventCount event;
  std::atomic<bool> done{false};
  std::atomic<Nanoseconds> happened{0};
  run(
      [&] {
        CategoryScope lock(this_profile(), Category::kLock);
        wait_for(event, done);
        EXPECT_GE(virtual_time::now(), happened.load());
        EXPECT_LT(virtual_time::now(), happened.load() + kSecond / 2);
      },
      [&] {
        virtual_time::advance(virtual_time::now() + 3 * kSecond);
        happened = virtual_time::now();
        event.mark();
        done = true;
        event.notify();
      });
  EXPECT_GE(time_in(0, Category::kLock), 3 * kSecond - kSecond / 2);
}

TEST_F(VirtualTimeTest, HandlersAreChargedToWhoWaits) {
  EventCount event;
  std::atomic<bool> done{false};
  run(
      [&] {
        CategoryScope wait(this_profile(), Category::kDataWait);
        wait_for(event, done);
      },
      [&] {
        while (!virtual_time::choose_interrupted().waits) std::this_thread::yield();
        const virtual_time::Interrupted waiting = virtual_time::choose_interrupted();
        EXPECT_EQ(waiting.processor, &g_clocks[0]);
        const Nanoseconds begin = virtual_time::now() + 2 * kSecond;
        AllFree time;
        virtual_time::HandlerScope handler(begin, kSecond, time);
        EXPECT_GE(virtual_time::stamp(), begin + kSecond);
        EXPECT_GE(handler.elapsed(), kSecond);
        virtual_time::charge(waiting, handler.elapsed());
        event.mark();
        done = true;
        event.notify();
      });
  EXPECT_GE(time_in(0, Category::kProtocol), kSecond);
  EXPECT_GE(time_in(0, Category::kDataWait), kSecond);
}

TEST_F(VirtualTimeTest, AnInterruptIsProtocolTimeOnTheClock) {
  run([] {
    const Nanoseconds before = virtual_time::now();
    ProfileSnapshot start;
    this_profile().snapshot(start);
    const virtual_time::Interrupted self = virtual_time::choose_interrupted();
    EXPECT_EQ(self.processor, &g_clocks[0]);
    EXPECT_FALSE(self.waits);
    virtual_time::charge(self, kSecond);
    virtual_time::synchronise();
    EXPECT_GE(virtual_time::now(), before + kSecond);
    ProfileSnapshot end;
    this_profile().snapshot(end);
    EXPECT_GE(end.since(start).ticks[static_cast<size_t>(Category::kProtocol)], kSecond);
  });
}

TEST_F(VirtualTimeTest, WhatMissedChecksCostIsProtocolTime) {
  run([] {
    ProcessorProfile& profile = this_profile();
    ProfileSnapshot start, end;
    profile.snapshot(start);
    const Nanoseconds before = virtual_time::now();
    work_unseen();
    {
      const virtual_time::MissedCheck missed;
      EXPECT_EQ(profile.current(), Category::kProtocol);
      // A scope inside another is the same one.
      {
        const virtual_time::MissedCheck again;
      }
      EXPECT_EQ(profile.current(), Category::kProtocol);
    }
    EXPECT_EQ(profile.current(), Category::kUser);
    EXPECT_GE(virtual_time::now(), before + 200'000);
    profile.snapshot(end);
    const ProfileSnapshot passed = end.since(start);
    EXPECT_GE(passed.ticks[static_cast<size_t>(Category::kProtocol)], kCheck);
    EXPECT_GE(passed.ticks[static_cast<size_t>(Category::kUser)], 200'000 - kCheck);
    // No more is moved than has passed: the clock has just been read.
    virtual_time::now();
    const Nanoseconds now = virtual_time::now();
    {
      const virtual_time::MissedCheck missed;
    }
    EXPECT_GE(virtual_time::now(), now);
  });
}

TEST_F(VirtualTimeTest, WhatTheRuntimeIsCalledForIsNotTheProgramsTime) {
  run([] {
    ProcessorProfile& profile = this_profile();
    ProfileSnapshot start, end;
    profile.snapshot(start);
    const Nanoseconds before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    {
      const virtual_time::RuntimeCall call(Category::kLock);
      EXPECT_EQ(profile.current(), Category::kLock);
      work_unseen();
      {
        const CategoryScope wait(profile, Category::kDataWait);
        // A call that the runtime makes is part of what it does.
        const virtual_time::RuntimeCall again(Category::kLock);
        EXPECT_EQ(profile.current(), Category::kDataWait);
      }
      EXPECT_EQ(profile.current(), Category::kLock);
    }
    EXPECT_EQ(profile.current(), Category::kUser);
    const Nanoseconds took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
    profile.snapshot(end);
    const Nanoseconds lock = end.since(start).ticks[static_cast<size_t>(Category::kLock)];
    // At the program's factor it would be ten times 200 us and more.
    EXPECT_GE(lock, 200'000u);
    EXPECT_LT(lock, took * kScale / 2);
  });
}

TEST_F(VirtualTimeTest, AClockStandsForWhatIsUnaccountedThroughWaitsAndHandlers) {
  EventCount event;
  std::atomic<bool> done{false};
  run(
      [&] {
        const virtual_time::UnaccountedMessages measuring;
        const Nanoseconds before = virtual_time::now();
        wait_for(event, done);
        work_unseen();
        EXPECT_EQ(virtual_time::now(), before);
        EXPECT_TRUE(virtual_time::UnaccountedMessages::on());
      },
      [&] {
        while (!virtual_time::choose_interrupted().waits) std::this_thread::yield();
        virtual_time::advance(virtual_time::now() + 5 * kSecond);
        EXPECT_FALSE(virtual_time::UnaccountedMessages::on());
        const virtual_time::UnaccountedHandler handler;
        EXPECT_TRUE(virtual_time::UnaccountedMessages::on());
        EXPECT_EQ(virtual_time::stamp(), 0u);
        event.mark();
        done = true;
        event.notify();
      });
}

TEST_F(VirtualTimeTest, NobodyRunsAheadOfTheSlowest) {
  const auto processor = [&](unsigned self, Nanoseconds step) {
    const Nanoseconds end = virtual_time::now() + 40 * kSkew;
    while (virtual_time::now() < end) {
      virtual_time::advance(virtual_time::now() + step);
      const Nanoseconds clock = virtual_time::now();
      virtual_time::synchronise();
      // The clocks that other processors have published only grow, so this holds however long ago they were looked at.
      for (unsigned other = 0; other < 3; ++other) {
        if (other == self || g_clocks[other].state.load() != virtual_time::ProcessorClock::kRuns) continue;
        EXPECT_GE(g_clocks[other].published.load() + kSkew, clock) << other << " is slower than " << self;
      }
    }
  };
  run([&] { processor(0, 10'000); }, [&] { processor(1, 300'000); }, [&] { processor(2, 3'000); });
}

TEST_F(VirtualTimeTest, AProcessorThatSleepsInTheSystemHoldsNobodyUp) {
  std::atomic<bool> stop{false};
  run(
      [&] {
        while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      },
      [&] {
        virtual_time::advance(virtual_time::now() + 5 * kSecond);
        virtual_time::synchronise();
        stop = true;
      });
}

TEST_F(VirtualTimeTest, AProcessorThatWaitsForAnotherHoldsNobodyUp) {
  EventCount event;
  std::atomic<bool> done{false};
  run(
      [&] {
        CategoryScope lock(this_profile(), Category::kLock);
        wait_for(event, done);
      },
      [&] {
        while (!virtual_time::choose_interrupted().waits) std::this_thread::yield();
        virtual_time::advance(virtual_time::now() + 5 * kSecond);
        virtual_time::synchronise();
        event.mark();
        done = true;
        event.notify();
      });
}

}  // namespace
}  // namespace multigrain
