#include "fabric/emulation/calendar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace multigrain {
namespace {

TEST(CalendarTest, RequestsInOrderQueue) {
  Calendar calendar;
  EXPECT_EQ(calendar.reserve(100, 10), 100u);
  EXPECT_EQ(calendar.reserve(105, 10), 110u);
  EXPECT_EQ(calendar.reserve(200, 10), 200u);
  // The first two reservations are one interval.
  EXPECT_EQ(calendar.intervals(), 2u);
}

TEST(CalendarTest, ALateRequestForAnEarlierTimeTakesTheGap) {
  Calendar calendar;
  calendar.reserve(1000, 100);
  calendar.reserve(1150, 100);
  EXPECT_EQ(calendar.reserve(900, 100), 900u);
  EXPECT_EQ(calendar.reserve(990, 50), 1100u);
  EXPECT_EQ(calendar.reserve(990, 51), 1250u);
  EXPECT_EQ(calendar.intervals(), 1u);
}

TEST(CalendarTest, NothingTakesNoTime) {
  Calendar calendar;
  calendar.reserve(10, 5);
  EXPECT_EQ(calendar.gap(12, 0), 15u);
  calendar.occupy(40, 0);
  EXPECT_EQ(calendar.intervals(), 1u);
}

// Compares the calendar with a table of moments.
TEST(CalendarTest, RandomReservationsNeverOverlapAndTakeTheFirstGap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Calendar calendar;
    std::vector<bool> busy(4000);
    for (int i = 0; i < 60; ++i) {
      const auto from = static_cast<unsigned>(random() % 1500);
      const auto length = static_cast<unsigned>(1 + random() % 30);
      unsigned expected = from;
      while (std::find(busy.begin() + expected, busy.begin() + expected + length, true) !=
             busy.begin() + expected + length)
        ++expected;
      ASSERT_EQ(calendar.reserve(from, length), expected);
      std::fill_n(busy.begin() + expected, length, true);
    }
  }
}

// Occupations that were marked without asking may overlap; handlers that ran at the same time mark such ones.
TEST(CalendarTest, OverlappingOccupationsAreOneInterval) {
  Calendar calendar;
  calendar.occupy(10, 10);
  calendar.occupy(30, 10);
  calendar.occupy(15, 20);
  EXPECT_EQ(calendar.intervals(), 1u);
  EXPECT_EQ(calendar.gap(0, 10), 0u);
  EXPECT_EQ(calendar.gap(0, 11), 40u);
}

TEST(CalendarTest, WorkGoesOnAfterWhatIsBusy) {
  Calendar calendar;
  EXPECT_EQ(calendar.take(100, 0), 100u);
  EXPECT_EQ(calendar.intervals(), 0u);
  calendar.reserve(100, 50);
  calendar.reserve(200, 10);
  EXPECT_EQ(calendar.take(120, 0), 150u);
  // Half of it fits in before 200, and the rest comes after 210.
  EXPECT_EQ(calendar.take(120, 100), 260u);
  EXPECT_EQ(calendar.intervals(), 1u);
  // It ends where the next interval begins, and nothing is there twice.
  calendar.reserve(300, 10);
  EXPECT_EQ(calendar.take(0, 100), 100u);
  EXPECT_EQ(calendar.take(0, 40), 300u);
  EXPECT_EQ(calendar.take(0, 1), 311u);
}

// Compares the calendar with a table of moments.
TEST(CalendarTest, RandomWorkTakesEveryFreeMomentOnce) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Calendar calendar;
    std::vector<bool> busy(4000);
    for (int i = 0; i < 60; ++i) {
      const auto from = static_cast<unsigned>(random() % 1500);
      const auto length = static_cast<unsigned>(1 + random() % 30);
      unsigned end = from;
      for (unsigned left = length; left != 0; ++end) {
        if (busy[end]) continue;
        busy[end] = true;
        --left;
      }
      ASSERT_EQ(calendar.take(from, length), end);
    }
    ASSERT_EQ(calendar.forgotten(), 0u);
    ASSERT_TRUE(calendar.remembers(0));
  }
}

TEST(CalendarTest, ItForgetsTheOldestWhenItIsFull) {
  Calendar calendar;
  for (Nanoseconds i = 0; i < 1000; ++i) EXPECT_EQ(calendar.reserve(10 * i, 5), 10 * i);
  EXPECT_LT(calendar.intervals(), 1000u);
  // It says so, and until when.
  EXPECT_EQ(calendar.forgotten(), 1000 - calendar.intervals());
  const Nanoseconds until = 10 * (calendar.forgotten() - 1) + 5;
  EXPECT_TRUE(calendar.remembers(until));
  EXPECT_FALSE(calendar.remembers(until - 1));
  EXPECT_EQ(calendar.reserve(9990, 5), 9995u);
  // Room has been made for an interval in the middle, too.
  EXPECT_EQ(calendar.reserve(9986, 3), 9986u);
}

}  // namespace
}  // namespace multigrain
