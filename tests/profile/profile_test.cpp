// These test ProcessorProfile: the categories add up to the measured time whatever happens, also when signals interrupt
// a switch.
#include "profile/profile.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>

namespace multigrain {
namespace {

uint64_t at(const ProfileSnapshot& snapshot, Category category) {
  return snapshot.ticks[static_cast<size_t>(category)];
}

uint64_t at(const ProfileSnapshot& snapshot, Counter counter) {
  return snapshot.counters[static_cast<size_t>(counter)];
}

TEST(Profile, EachIntervalGoesToTheCategoryThatWasCurrent) {
  ProcessorProfile profile;
  EXPECT_EQ(profile.enter_at(Category::kUser, 1000), Category::kStopped);
  EXPECT_EQ(profile.enter_at(Category::kProtocol, 1100), Category::kUser);
  EXPECT_EQ(profile.enter_at(Category::kDataWait, 1130), Category::kProtocol);
  EXPECT_EQ(profile.enter_at(Category::kUser, 1200), Category::kDataWait);
  EXPECT_EQ(profile.enter_at(Category::kLock, 1250), Category::kUser);
  EXPECT_EQ(profile.enter_at(Category::kBarrier, 1251), Category::kLock);
  EXPECT_EQ(profile.enter_at(Category::kStopped, 1300), Category::kBarrier);
  ProfileSnapshot seen;
  profile.snapshot(seen);
  EXPECT_EQ(at(seen, Category::kUser), 150u);
  EXPECT_EQ(at(seen, Category::kProtocol), 30u);
  EXPECT_EQ(at(seen, Category::kDataWait), 70u);
  EXPECT_EQ(at(seen, Category::kLock), 1u);
  EXPECT_EQ(at(seen, Category::kBarrier), 49u);
  EXPECT_EQ(at(seen, Category::kIdle), 0u);
  EXPECT_EQ(seen.total_ticks(), 300u);
}

TEST(Profile, RandomSwitchesAddUpToTheTimeBetweenStartAndStop) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    ProcessorProfile profile;
    uint64_t now = random() >> 8;
    uint64_t measured = 0;
    for (int period = 0; period < 3; ++period) {
      const uint64_t start = now;
      profile.enter_at(Category::kUser, now);
      for (int i = 0; i < 50; ++i) {
        now += random() % 1000;
        profile.enter_at(static_cast<Category>(random() % kCategoryCount), now);
      }
      now += random() % 1000;
      profile.enter_at(Category::kStopped, now);
      measured += now - start;
      now += random() % 100000;
    }
    ProfileSnapshot seen;
    profile.snapshot(seen);
    ASSERT_EQ(seen.total_ticks(), measured);
  }
}

TEST(Profile, AnOpenIntervalIsPartOfASnapshot) {
  ProcessorProfile profile;
  profile.enter_at(Category::kUser, 100);
  profile.enter_at(Category::kBarrier, 150);
  ProfileSnapshot seen;
  const uint64_t now = 175;
  profile.snapshot_at(seen, &now);
  EXPECT_EQ(at(seen, Category::kUser), 50u);
  EXPECT_EQ(at(seen, Category::kBarrier), 25u);
}

TEST(Profile, ScopesRestoreTheCategoryBefore) {
  ProcessorProfile profile;
  profile.start();
  {
    CategoryScope lock(profile, Category::kLock);
    EXPECT_EQ(profile.current(), Category::kLock);
    {
      CategoryScope protocol(profile, Category::kProtocol);
      EXPECT_EQ(profile.current(), Category::kProtocol);
    }
    EXPECT_EQ(profile.current(), Category::kLock);
  }
  EXPECT_EQ(profile.current(), Category::kUser);
  profile.stop();
  EXPECT_EQ(profile.current(), Category::kStopped);
}

TEST(Profile, CountersAndTheDifferenceOfTwoSnapshots) {
  ProcessorProfile profile;
  profile.count(Counter::kReadFaults);
  profile.count(Counter::kDiffBytes, 100);
  profile.count_message(0x11, 64);
  ProfileSnapshot before;
  profile.snapshot(before);
  profile.count(Counter::kReadFaults, 2);
  profile.count_rights(RightsChange::kGrantRead, 1);
  profile.count_rights(RightsChange::kRevoke, 16);
  profile.count_rights(RightsChange::kRevoke, 16);
  profile.count_message(0x11, 32);
  profile.count_message(0xff, 4128);
  profile.add_sub_time(SubTime::kDiffs, 77);
  ProfileSnapshot after;
  profile.snapshot(after);
  const ProfileSnapshot change = after.since(before);
  EXPECT_EQ(at(change, Counter::kReadFaults), 2u);
  EXPECT_EQ(at(change, Counter::kDiffBytes), 0u);
  EXPECT_EQ(at(change, Counter::kGrantReads), 1u);
  EXPECT_EQ(at(change, Counter::kGrantReadPages), 1u);
  EXPECT_EQ(at(change, Counter::kRevokes), 2u);
  EXPECT_EQ(at(change, Counter::kRevokePages), 32u);
  EXPECT_EQ(change.messages[0x11], 1u);
  EXPECT_EQ(change.message_bytes[0x11], 32u);
  EXPECT_EQ(change.message_bytes[0xff], 4128u);
  EXPECT_EQ(change.sub_ticks[static_cast<size_t>(SubTime::kDiffs)], 77u);
  EXPECT_EQ(after.messages[0x11], 2u);
}

ProcessorProfile* signalled = nullptr;
std::atomic<uint64_t> signals_seen{0};

void switch_in_handler(int) {
  CategoryScope scope(*signalled, Category::kProtocol);
  signalled->count(Counter::kUpgrades);
  signals_seen.fetch_add(1, std::memory_order_relaxed);
}

TEST(Profile, ASignalInTheMiddleOfASwitchLosesNothing) {
  const auto profile = std::make_unique<ProcessorProfile>();
  signalled = profile.get();
  signals_seen = 0;
  struct sigaction action{};
  action.sa_handler = switch_in_handler;
  struct sigaction old{};
  ASSERT_EQ(sigaction(SIGALRM, &action, &old), 0);
  const itimerval interval{{0, 50}, {0, 50}};
  const itimerval off{};
  const uint64_t start = ticks();
  profile->enter_at(Category::kUser, start);
  ASSERT_EQ(setitimer(ITIMER_REAL, &interval, nullptr), 0);
  while (signals_seen.load(std::memory_order_relaxed) < 3000) {
    CategoryScope scope(*profile, Category::kLock);
    profile->count(Counter::kLocksLocal);
  }
  ASSERT_EQ(setitimer(ITIMER_REAL, &off, nullptr), 0);
  const uint64_t stop = ticks();
  profile->enter_at(Category::kStopped, stop);
  sigaction(SIGALRM, &old, nullptr);
  ProfileSnapshot seen;
  profile->snapshot(seen);
  EXPECT_EQ(seen.total_ticks(), stop - start);
  EXPECT_EQ(at(seen, Counter::kUpgrades), signals_seen.load());
}

TEST(Profile, SnapshotsByAnotherThreadAreConsistent) {
  const auto profile = std::make_unique<ProcessorProfile>();
  std::atomic<bool> stop{false};
  std::atomic<bool> running{false};
  const uint64_t start = ticks();
  profile->enter_at(Category::kUser, start);
  std::thread owner([&] {
    running = true;
    while (!stop.load(std::memory_order_relaxed)) {
      CategoryScope outer(*profile, Category::kLock);
      CategoryScope inner(*profile, Category::kProtocol);
    }
  });
  while (!running) std::this_thread::yield();
  uint64_t last = 0;
  bool consistent = true;
  for (int i = 0; i < 20000; ++i) {
    ProfileSnapshot seen;
    const uint64_t before = ticks() - start;
    profile->snapshot(seen);
    const uint64_t after = ticks() - start;
    const uint64_t total = seen.total_ticks();
    consistent = consistent && total >= before && total <= after && total >= last;
    last = total;
  }
  stop = true;
  owner.join();
  EXPECT_TRUE(consistent);
}

}  // namespace
}  // namespace multigrain
