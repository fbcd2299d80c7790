// Tests of what the stream prefetcher predicts from the faults of a thread.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "coherence/sc/stream_prefetcher.h"

namespace multigrain::sc {
namespace {

constexpr uint32_t kLimit = 16;

// Returns the pages from + stride, from + 2 * stride and so on.
std::set<int64_t> pages(const StreamPrefetcher::Prediction& prediction) {
  std::set<int64_t> all;
  for (int64_t i = 1; i <= int64_t{prediction.count}; ++i) all.insert(prediction.from + i * prediction.stride);
  return all;
}

std::set<int64_t> fault(StreamPrefetcher& prefetcher, uint64_t page, bool is_write = false) {
  return pages(prefetcher.predict(PageId(page), is_write, kLimit));
}

TEST(ScStreamPrefetcher, NothingIsAskedForBeforeAPageTurnsUpWhereItWasExpected) {
  StreamPrefetcher prefetcher;
  EXPECT_TRUE(fault(prefetcher, 100).empty());
  EXPECT_TRUE(fault(prefetcher, 101).empty());
  EXPECT_EQ(fault(prefetcher, 102), (std::set<int64_t>{103, 104}));
}

// A thread that goes on faults on the first page of the last prefetch. Each page is asked for once, and all are.
TEST(ScStreamPrefetcher, AThreadThatGoesOnHasEveryPageAskedForOnce) {
  StreamPrefetcher prefetcher;
  std::set<int64_t> asked;
  uint64_t at = 100;
  for (int faults = 0; faults < 20; ++faults) {
    const std::set<int64_t> more = fault(prefetcher, at);
    for (const int64_t page : more) EXPECT_TRUE(asked.insert(page).second) << page;
    // The pages that were asked for before this fault have come, and are used up.
    at = asked.empty() ? at + 1 : more.empty() ? at + 1 : static_cast<uint64_t>(*more.begin());
  }
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(*asked.begin(), 103);
  EXPECT_EQ(static_cast<int64_t>(asked.size()), *asked.rbegin() - *asked.begin() + 1);
  EXPECT_GT(asked.size(), size_t{10 * kLimit});
}

TEST(ScStreamPrefetcher, AThreadMayGoBackwardsOrInStrides) {
  StreamPrefetcher prefetcher;
  fault(prefetcher, 500);
  fault(prefetcher, 499);
  EXPECT_EQ(fault(prefetcher, 498), (std::set<int64_t>{497, 496}));
  StreamPrefetcher columns;
  fault(columns, 0);
  fault(columns, 10);
  EXPECT_EQ(fault(columns, 20), (std::set<int64_t>{30, 40}));
}

TEST(ScStreamPrefetcher, ReadingAndWritingAreStreamsOfTheirOwn) {
  StreamPrefetcher prefetcher;
  fault(prefetcher, 100, false);
  fault(prefetcher, 101, false);
  EXPECT_TRUE(fault(prefetcher, 102, true).empty());
  EXPECT_FALSE(fault(prefetcher, 102, false).empty());
}

TEST(ScStreamPrefetcher, AThreadThatJumpsAboutAsksForNothing) {
  StreamPrefetcher prefetcher;
  uint64_t page = 12345;
  for (int i = 0; i < 1000; ++i) {
    page = page * 6364136223846793005u + 1442695040888963407u;
    EXPECT_TRUE(fault(prefetcher, page >> 20).empty());
  }
}

// Wherever the faults fall inside the pages that were asked for, no more than twice the limit is in front of the
// thread.
TEST(ScStreamPrefetcher, WhatIsInFrontOfAThreadIsBounded) {
  StreamPrefetcher prefetcher;
  int64_t last = 0;
  for (uint64_t page = 100; page < 400; ++page) {
    const std::set<int64_t> more = fault(prefetcher, page);
    if (!more.empty()) last = *more.rbegin();
    EXPECT_LE(last, static_cast<int64_t>(page + 2 * kLimit));
  }
}

}  // namespace
}  // namespace multigrain::sc
