#include <gtest/gtest.h>

#include "coherence/hlrc/line_history.h"

namespace multigrain::hlrc {
namespace {

constexpr uint32_t kLines = 64;  // of a page
constexpr unsigned kMost = 1000;

// Returns how many such diffs it takes until the page should move; kMost: it never should.
unsigned diffs_until_move(ChangedLines changed, bool like_its_neighbour = false) {
  LineHistory history;
  unsigned diffs = 1;
  while (diffs < kMost && !history.compared(changed, kLines, like_its_neighbour)) ++diffs;
  return diffs;
}

TEST(LineHistory, APageMovesIfFewOfItsLinesChangeAtATime) {
  EXPECT_LT(diffs_until_move({.lines = 1, .runs = 1}), 10u);
  EXPECT_LT(diffs_until_move({.lines = 1, .runs = 1}), diffs_until_move({.lines = 4, .runs = 4}));
}

TEST(LineHistory, LinesNextToEachOtherCostLess) {
  EXPECT_LT(diffs_until_move({.lines = 16, .runs = 1}), kMost);
  EXPECT_EQ(diffs_until_move({.lines = 16, .runs = 16}), kMost);
}

TEST(LineHistory, APageThatChangesWholeStays) {
  EXPECT_EQ(diffs_until_move({.lines = kLines, .runs = 1}), kMost);
}

TEST(LineHistory, APageWhoseNeighbourHasMovedNeedsLess) {
  const ChangedLines few{.lines = 2, .runs = 2};
  EXPECT_LT(diffs_until_move(few, true), diffs_until_move(few, false));
}

TEST(LineHistory, ComparisonsInVainSpeakForLinesToo) {
  EXPECT_LT(diffs_until_move({}), kMost);
  EXPECT_GT(LineHistory::lost({}), 0u);
}

TEST(LineHistory, DiffsOfManyLinesSpeakAgainst) {
  LineHistory history;
  const ChangedLines few{.lines = 1, .runs = 1}, many{.lines = kLines, .runs = 1};
  for (unsigned i = 0; i < kMost; ++i)
    EXPECT_FALSE(history.compared(few, kLines, false) || history.compared(many, kLines, false) ||
                 history.compared(many, kLines, false) || history.compared(many, kLines, false));
  EXPECT_EQ(LineHistory::lost(many), 0u);
}

TEST(LineHistory, APageIsWantedOnce) {
  LineHistory history;
  unsigned wanted = 0;
  for (unsigned i = 0; i < kMost; ++i) wanted += history.compared({.lines = 1, .runs = 1}, kLines, false) ? 1 : 0;
  EXPECT_EQ(wanted, 1u);
  EXPECT_FALSE(history.want());
}

}  // namespace
}  // namespace multigrain::hlrc
