#include "coherence/run_history.h"

#include <gtest/gtest.h>

namespace multigrain {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint32_t>::max();

// Threads whose misses a history answers. A miss gets as many lines as are likely to be wanted.
class Threads {
 public:
  Threads() : history_(make()) {}

  RunHistory::Length length_at(uint64_t line, bool stores = false) {
    const RunHistory::Length length = history_.length_at(0, line, stores);
    history_.came(0, line, 0, stores, false);
    return length;
  }

  // Thread `thread` goes through the `lines` lines from `first` on. Returns how often it misses, and counts the lines that
  // come in vain.
  int go(uint64_t thread, uint64_t first, uint64_t lines, bool stores = false) {
    int misses = 0;
    for (uint64_t line = first; line < first + lines; ++misses) {
      const uint32_t units = history_.length_at(thread, line, stores).likely;
      history_.came(thread, line + units, units, stores, true);
      line += units;
      if (line > first + lines) in_vain_ += line - (first + lines);
    }
    return misses;
  }

  [[nodiscard]] uint64_t in_vain() const { return in_vain_; }
  void forget_in_vain() { in_vain_ = 0; }

 private:
  static RunHistory make() {
    auto history = RunHistory::create(1 << 20, 4);
    EXPECT_TRUE(history);
    return history ? std::move(*history) : RunHistory();
  }

  RunHistory history_;
  uint64_t in_vain_ = 0;
};

// What is tested on one zone of memory goes there, with objects of so many lines.
constexpr uint64_t kZone = 4096;
constexpr uint64_t kObject = 64;
uint64_t object(uint64_t number) {
  return kObject * (number % (kZone / kObject));
}

TEST(RunHistory, NothingIsLikelyAndEverythingPossibleAtFirst) {
  Threads threads;
  const RunHistory::Length length = threads.length_at(7);
  EXPECT_EQ(length.likely, 1u);
  EXPECT_EQ(length.possible, kUnlimited);
}

TEST(RunHistory, ObjectsOfOneSizeComeWhole) {
  for (const uint64_t size : {2, 3, 5, 17}) {
    Threads threads;
    for (uint64_t i = 0; i < 2000; ++i) threads.go(0, object(i), size);
    threads.forget_in_vain();
    int misses = 0;
    for (uint64_t i = 0; i < 160; ++i) misses += threads.go(0, object(i), size);
    // One object in 16 or so comes line by line first.
    EXPECT_LE(misses, 160 * 5 / 4) << size;
    EXPECT_EQ(threads.in_vain(), 0u) << size;
  }
}

TEST(RunHistory, WhatIsUsedAloneComesAlone) {
  Threads threads;
  for (uint64_t i = 0; i < 4000; ++i) threads.go(0, object(i), 1);
  EXPECT_EQ(threads.in_vain(), 0u);
  EXPECT_LT(threads.length_at(object(1)).possible, 3u);
}

TEST(RunHistory, AZoneThatIsUsedDifferentlyFromNowOnIsKnownAsSuch) {
  Threads threads;
  for (uint64_t i = 0; i < 4000; ++i) threads.go(0, object(i), 8);
  for (uint64_t i = 0; i < 40000; ++i) threads.go(0, object(i), 1);
  threads.forget_in_vain();
  for (uint64_t i = 0; i < 1000; ++i) threads.go(0, object(i), 1);
  EXPECT_LE(threads.in_vain(), 100u);
}

TEST(RunHistory, AZoneSaysNothingOfAnother) {
  Threads threads;
  for (uint64_t i = 0; i < 2000; ++i) threads.go(0, object(i), 8);
  EXPECT_EQ(threads.length_at(kZone + 7).likely, 1u);
}

TEST(RunHistory, NorDoLoadsOfStores) {
  Threads threads;
  for (uint64_t i = 0; i < 2000; ++i) threads.go(0, object(i), 8);
  EXPECT_EQ(threads.length_at(object(3) + 16, true).likely, 1u);
}

TEST(RunHistory, WhatOneThreadLearnsHoldsForAllOfItsNode) {
  Threads threads;
  for (uint64_t i = 0; i < 2000; ++i) threads.go(0, object(i), 4);
  int misses = 0;
  for (uint64_t i = 0; i < 10; ++i) misses += threads.go(1, object(i), 4);
  EXPECT_EQ(misses, 10);
}

// How far a long run goes on is left to the order in which a thread goes through memory.
TEST(RunHistory, ALongRunComesAsFarAsIsKnownAndMayGoOn) {
  Threads threads;
  for (int i = 0; i < 200; ++i) threads.go(0, 0, 100);
  EXPECT_EQ(threads.length_at(0).likely, 32u);
  EXPECT_EQ(threads.length_at(0).possible, kUnlimited);
}

// The end of a run that nothing could follow, such as that of a page, says nothing of runs.
TEST(RunHistory, ARunThatCouldNotGoOnIsNotCounted) {
  auto history = RunHistory::create(1 << 20, 1);
  ASSERT_TRUE(history);
  for (uint64_t i = 0; i < 4000; ++i) {
    history->length_at(0, object(i), false);
    history->came(0, object(i) + 1, 1, false, false);
  }
  EXPECT_EQ(history->length_at(0, 1, false).possible, kUnlimited);
}

}  // namespace
}  // namespace multigrain
