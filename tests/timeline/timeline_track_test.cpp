// A track: what it keeps when it is full, and that a signal handler may write in the middle of its thread's own writing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "timeline/timeline.h"

namespace multigrain::timeline {
namespace {

Event interval(uint64_t begin, uint64_t duration) {
  return {.begin = begin, .duration = duration};
}

TEST(Track, KeepsAllWhileThereIsRoom) {
  std::vector<Event> memory(8);
  Track track;
  track.bind(memory, 10);
  for (uint64_t i = 0; i < 8; ++i) track.add(interval(i, 1));
  EXPECT_EQ(track.events().size(), 8u);
  EXPECT_EQ(track.left_out(), 0u);
  EXPECT_EQ(track.least(), 0u);
}

TEST(Track, ForgetsTheShortestIntervals) {
  std::vector<Event> memory(64);
  Track track;
  track.bind(memory, 10);
  constexpr uint64_t kEvents = 10'000;
  for (uint64_t i = 0; i < kEvents; ++i) track.add(interval(i, i % 1000));
  EXPECT_LE(track.events().size(), 64u);
  EXPECT_GE(track.events().size(), 16u);
  EXPECT_EQ(track.left_out() + track.events().size(), kEvents);
  // Every interval that is left is as long as the track says, and the longest of all is among them.
  EXPECT_GT(track.least(), 0u);
  for (const Event& event : track.events()) EXPECT_GE(event.duration, track.least());
  track.add(interval(kEvents, 1'000'000));
  EXPECT_TRUE(std::ranges::any_of(track.events(), [](const Event& event) { return event.duration == 1'000'000; }));
}

TEST(Track, HasRoomAlsoIfAllIntervalsAreEquallyLong) {
  std::vector<Event> memory(16);
  Track track;
  track.bind(memory, 10);
  for (uint64_t i = 0; i < 1000; ++i) track.add(interval(i, 700));
  EXPECT_LE(track.events().size(), 16u);
  EXPECT_GE(track.events().size(), 8u);
  EXPECT_EQ(track.left_out() + track.events().size(), 1000u);
  // They are spread over the run: those of its first half and of its second half are about as many.
  EXPECT_GT(track.one_in(), 1u);
  const auto early = std::ranges::count_if(track.events(), [](const Event& event) { return event.begin < 500; });
  EXPECT_GE(early, 2);
  EXPECT_LE(early, static_cast<ptrdiff_t>(track.events().size()) - 2);
}

TEST(Track, KeepsMessagesByTheirNumbers) {
  std::vector<Event> sends(64), handlers(64);
  Track sender, receiver;
  sender.bind(sends, 10);
  receiver.bind(handlers, 10);
  for (uint64_t i = 0; i < 1000; ++i) {
    sender.add({.begin = i, .key = i, .kind = Kind::kSend});
    receiver.add({.begin = i + 5, .duration = 1, .key = i, .kind = Kind::kHandler});
  }
  const auto numbers_in = [](const Track& track) {
    std::set<uint64_t> numbers;
    for (const Event& event : track.events()) numbers.insert(event.key);
    return numbers;
  };
  // One of the two may have been full more often; what that one keeps by its number the other has, too. As many are left as
  // make arrows over the whole run.
  const std::set<uint64_t> sent = numbers_in(sender), handled = numbers_in(receiver);
  std::vector<uint64_t> both;
  std::ranges::set_intersection(sent, handled, std::back_inserter(both));
  EXPECT_GE(both.size(), 8u);
  EXPECT_LT(both.front(), 500u);
  EXPECT_GE(both.back(), 500u);
}

TEST(Track, ShowsACategoryFromWhenItWasEntered) {
  std::vector<Event> memory(8);
  Track track;
  track.bind(memory, 10);
  track.switched(7, false, 100);  // measured from here on
  track.switched(0, true, 150);
  track.switched(4, true, 160);
  track.switched(5, false, 500);
  ASSERT_EQ(track.events().size(), 2u);
  EXPECT_EQ(track.events()[0].begin, 100u);
  EXPECT_EQ(track.events()[0].duration, 50u);
  EXPECT_EQ(track.events()[0].what, 0);
  EXPECT_EQ(track.events()[1].begin, 150u);
  EXPECT_EQ(track.events()[1].what, 4);
}

Track g_interrupted;
uint64_t g_by_handler = 0;

// Each event that is not left out is there whole, and once, however often a handler interrupts add().
TEST(Track, HandlersMayInterruptIt) {
  std::vector<Event> memory(256);
  g_interrupted.bind(memory, 2);
  struct sigaction action{}, before{};
  action.sa_handler = [](int) {
    const uint64_t number = 1'000'000'000 + g_by_handler++;
    g_interrupted.add({.begin = number, .duration = 1 + number % 512, .key = number, .site = ~number});
  };
  ASSERT_EQ(sigaction(SIGPROF, &action, &before), 0);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 50}, .it_value = {.tv_sec = 0, .tv_usec = 50}};
  ASSERT_EQ(setitimer(ITIMER_PROF, &often, nullptr), 0);
  uint64_t written = 0;
  while (g_by_handler < 20 || written < 2'000'000) {
    g_interrupted.add({.begin = written, .duration = 1 + written % 512, .key = written, .site = ~written});
    ++written;
  }
  const itimerval never{};
  setitimer(ITIMER_PROF, &never, nullptr);
  sigaction(SIGPROF, &before, nullptr);
  std::vector<uint64_t> keys;
  for (const Event& event : g_interrupted.events()) {
    EXPECT_EQ(event.site, ~event.key);
    EXPECT_EQ(event.begin, event.key);
    keys.push_back(event.key);
  }
  std::ranges::sort(keys);
  EXPECT_EQ(std::ranges::adjacent_find(keys), keys.end()) << "an event is there twice";
}

TEST(Timeline, GivesTracksToThreadsWhileThereAreAny) {
  EXPECT_FALSE(on());
  begin_track();
  EXPECT_EQ(this_track(), nullptr);
  ASSERT_TRUE(start({.tracks = 1, .events = 16, .now = [] { return uint64_t{42}; }, .units_per_us = 1000}));
  begin_track();
  Track* const track = this_track();
  ASSERT_NE(track, nullptr);
  EXPECT_EQ(track->owner(), Owner::kThread);
  {
    const Interval interval({.key = 7, .kind = Kind::kFault});
  }
  ASSERT_EQ(track->events().size(), 1u);
  EXPECT_EQ(track->events()[0].begin, 42u);
  EXPECT_EQ(track->events()[0].key, 7u);
  end_track();
  begin_track();
  EXPECT_EQ(this_track(), nullptr);
  EXPECT_EQ(threads_without_track(), 1u);
  EXPECT_EQ(tracks().size(), 1u);
}

}  // namespace
}  // namespace multigrain::timeline
