#include "coherence/run_streams.h"

#include <gtest/gtest.h>

namespace multigrain {
namespace {

constexpr uint32_t kMost = 16;

// A processor whose faults the streams follow: each page that is due is served.
struct Walk {
  RunStreams streams;
  uint64_t faults = 0;

  // The processor touches `pages` pages that are `stride` apart, from `first` on.
  void go(uint64_t first, int64_t stride, uint32_t pages) {
    uint32_t served = 0;
    for (uint32_t i = 0; i < pages; ++i) {
      if (i < served) continue;
      const PageId page(first + static_cast<uint64_t>(stride * i));
      const RunStreams::Continued at = streams.continued_at(page, kMost);
      ++faults;
      const bool follows = at.length != 0 && at.stride == stride;
      served = i + 1 + (follows ? at.due : 0);
      streams.expect(page, at, follows ? 1 + at.due : 1);
    }
  }
};

TEST(RunStreams, AProcessorThatGoesPageByPageGetsMoreAndMore) {
  Walk walk;
  walk.go(100, 1, 512);
  EXPECT_LE(walk.faults, 512 / (kMost + 1) + 6);
}

TEST(RunStreams, SoDoesOneThatGoesByAnyShortStride) {
  for (const int64_t stride : {2, 9, -8, 64, -64}) {
    Walk walk;
    walk.go(1 << 20, stride, 512);
    EXPECT_LE(walk.faults, 512 / (kMost + 1) + 7) << stride;
  }
}

TEST(RunStreams, AStrideThatIsTooLongIsNone) {
  Walk walk;
  walk.go(100, RunStreams::kLongestStride + 1, 64);
  EXPECT_EQ(walk.faults, 64u);
}

TEST(RunStreams, SeveralStreamsAreFollowedInTurn) {
  RunStreams streams;
  uint64_t foreseen = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    for (const uint64_t array : {0, 10'000, 20'000, 30'000}) {
      const PageId page(array + 16 * i);
      const RunStreams::Continued at = streams.continued_at(page, 0);
      foreseen += at.length != 0 ? 1 : 0;
      EXPECT_EQ(at.due, 0u) << "more than `most`";
      streams.expect(page, at, 1);
    }
  }
  EXPECT_EQ(foreseen, 4u * (20 - 2)) << "each but for its first two faults";
}

TEST(RunStreams, ItsLengthIsWhatAStreamHasHad) {
  RunStreams streams;
  const auto fault = [&](uint64_t page, uint32_t served) {
    const RunStreams::Continued at = streams.continued_at(PageId(page), kMost);
    streams.expect(PageId(page), at, served);
    return at;
  };
  EXPECT_EQ(fault(0, 1).length, 0u);
  const RunStreams::Continued second = fault(1, 3);
  EXPECT_EQ(second.length, 1u);
  EXPECT_EQ(second.due, 2u);
  const RunStreams::Continued third = fault(4, 7);
  EXPECT_EQ(third.length, 4u);
  EXPECT_EQ(third.due, 6u);
  EXPECT_EQ(fault(11, 1).length, 11u);
  EXPECT_EQ(fault(500, 1).length, 0u) << "somewhere else";
}

}  // namespace
}  // namespace multigrain
