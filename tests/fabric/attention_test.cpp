#include "fabric/shm/attention.h"

#include <gtest/gtest.h>

namespace multigrain {
namespace {

TEST(Attention, NothingIsLeftToProcessorsUnlessSomeCompute) {
  Attention attention;
  EXPECT_EQ(attention.next(true, false, 0), 0u);
  EXPECT_EQ(attention.next(false, false, 2), 0u) << "no message has come";
  EXPECT_EQ(attention.next(true, false, 1), Attention::kShortest);
  EXPECT_EQ(attention.next(false, true, 0), 0u) << "the last processor sleeps";
  EXPECT_EQ(attention.next(false, true, 1), 0u) << "a sender wakes the service thread first";
}

TEST(Attention, IntervalsGrowWhileProcessorsTakeTheMessages) {
  Attention attention;
  Nanoseconds interval = attention.next(true, false, 1);
  for (int i = 0; i < 20; ++i) {
    const Nanoseconds next = attention.next(false, true, 1);
    EXPECT_EQ(next, std::min(2 * interval, Attention::kLongest));
    interval = next;
  }
  EXPECT_EQ(attention.next(true, true, 1), Attention::kLongest) << "the thread was only faster";
  EXPECT_EQ(attention.next(true, false, 1), Attention::kShortest) << "a message was left to it";
}

TEST(Attention, EndsWithoutMessages) {
  Attention attention;
  attention.next(true, false, 1);
  for (unsigned i = 1; i < Attention::kMostIdle; ++i) EXPECT_NE(attention.next(false, false, 1), 0u);
  EXPECT_EQ(attention.next(false, false, 1), 0u);
  EXPECT_EQ(attention.next(true, false, 1), Attention::kShortest);
}

// The processors do not poll. Each attempt costs as many late messages, so attempts become rare.
TEST(Attention, EndsWhereProcessorsTakeNothing) {
  Attention attention;
  unsigned late = 0;
  for (int i = 0; i < 100'000; ++i)
    if (attention.next(true, false, 1) != 0) ++late;
  EXPECT_GT(late, Attention::kMostLate);
  EXPECT_LT(late, 200u);
  // Once they do poll, it goes on as from the beginning.
  while (attention.next(true, false, 1) == 0) {
  }
  EXPECT_EQ(attention.next(false, true, 1), 2 * Attention::kShortest);
}

}  // namespace
}  // namespace multigrain
