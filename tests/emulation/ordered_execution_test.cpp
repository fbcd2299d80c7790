#include "emulation/ordered_execution.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "emulation/tournament.h"

namespace multigrain::ordered {
namespace {

constexpr unsigned kParticipants = 6;

struct Machine {
  Turn turn;
  std::array<Participant, kParticipants> participants;
  std::array<uint32_t, Tournament::words(kParticipants)> tree;
};

// What one participant has done in one of its turns.
struct Event {
  Nanoseconds time;
  unsigned participant;
  bool operator==(const Event&) const = default;
};

// Runs a machine in a process of its own, since ordered execution is turned on for good, with each participant in a
// thread; `body` runs in it after `join`, and `start` says when its first event is. Returns what the participants have
// put into the log, which needs no lock: they take turns.
class Turns {
 public:
  using Body = std::function<void(unsigned participant, Turns& run)>;
  using Start = std::function<std::optional<Nanoseconds>(unsigned participant)>;

  static std::vector<Event> of(const Start& start, const Body& body, uint64_t* interruptions = nullptr) {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* const shared = new (memory) Shared{};
    const pid_t child = fork();
    if (child == 0) {
      Turns run(*shared);
      std::vector<std::thread> threads;
      for (unsigned i = 0; i < kParticipants; ++i)
        threads.emplace_back([&, i] {
          join(i, start(i));
          body(i, run);
          leave();
        });
      for (std::thread& thread : threads) thread.join();
      if (run.successor_.joinable()) run.successor_.join();
      shared->interruptions = multigrain::ordered::interruptions();
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (interruptions != nullptr) *interruptions = shared->interruptions;
    std::vector<Event> events(shared->events.begin(), shared->events.begin() + shared->count);
    munmap(memory, sizeof(Shared));
    return events;
  }

  void log(Nanoseconds time, unsigned participant) { shared_.events[shared_.count++] = {time, participant}; }
  // Starts a thread that takes the place of the calling participant as soon as that one has left.
  void succeed(std::function<void()> body) { successor_ = std::thread(std::move(body)); }

 private:
  struct Shared {
    Machine machine;
    std::array<Event, 4096> events;
    long count;
    uint64_t interruptions;
  };
  explicit Turns(Shared& shared) : shared_(shared) {
    multigrain::ordered::start(
        {.participants = shared.machine.participants, .tree = shared.machine.tree, .turn = &shared.machine.turn});
  }
  Shared& shared_;
  std::thread successor_;
};

std::optional<Nanoseconds> at_once(unsigned) {
  return 0;
}

TEST(OrderedExecution, OnlyWhoIsReadyOrComesHasANextEvent) {
  Participant participant{};
  EXPECT_EQ(next_event(participant), std::nullopt);
  participant.time = 7;
  participant.was_made_ready = true;
  EXPECT_EQ(next_event(participant), 7u);
  for (const auto state : {Participant::kWaits, Participant::kRuns, Participant::kOutside}) {
    participant.state = state;
    EXPECT_EQ(next_event(participant), std::nullopt);
  }
  participant.state = Participant::kReady;
  EXPECT_EQ(next_event(participant), 7u);
}

TEST(OrderedExecution, EventsComeInTheOrderOfTheirTimes) {
  const auto body = [](unsigned self, Turns& run) {
    std::minstd_rand random(self + 1);
    Nanoseconds time = 0;
    for (int i = 0; i < 100; ++i) {
      // What a participant does between its events takes time here that has nothing to do with virtual time.
      if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      time += random() % 50;
      EXPECT_EQ(pass(time), time);
      run.log(time, self);
    }
  };
  const std::vector<Event> first = Turns::of(&at_once, body);
  ASSERT_EQ(first.size(), 100u * kParticipants);
  for (size_t i = 1; i < first.size(); ++i)
    EXPECT_LE(std::pair(first[i - 1].time, first[i - 1].participant), std::pair(first[i].time, first[i].participant))
        << i;
  EXPECT_EQ(Turns::of(&at_once, body), first);
}

TEST(OrderedExecution, OneThatWaitsGoesOnWhenItHasBeenMadeReady) {
  // Participant 0 makes the others ready, in an order that is not that of their times.
  const auto start = [](unsigned self) { return self == 0 ? std::optional<Nanoseconds>(10) : std::nullopt; };
  const auto body = [](unsigned self, Turns& run) {
    if (self == 0) {
      for (unsigned other = 1; other < kParticipants; ++other) make_ready(other, 100 - other);
      make_ready(2, 50);
      run.log(pass(97), self);
      return;
    }
    run.log(0, self);
    if (self != 2) return;
    // It has been made ready while it had the turn: its next wait ends at once.
    make_ready(2, 200);
    run.log(wait(), self);
  };
  const std::vector<Event> expected{{0, 2}, {0, 5}, {0, 4}, {97, 0}, {0, 3}, {0, 1}, {200, 2}};
  EXPECT_EQ(Turns::of(start, body), expected);
}

TEST(OrderedExecution, OneThatSleepsInItsTurnLosesIt) {
  const auto body = [](unsigned self, Turns& run) {
    if (self == 0) {
      // The others would wait for this participant as long as it sleeps.
      std::this_thread::sleep_for(std::chrono::seconds(2));
      pass(1000);
    }
    run.log(self, self);
  };
  uint64_t interruptions = 0;
  const std::vector<Event> expected{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {0, 0}};
  EXPECT_EQ(Turns::of(&at_once, body, &interruptions), expected);
  EXPECT_EQ(interruptions, 1u);
}

TEST(OrderedExecution, AnotherThreadTakesThePlaceOfOneThatLeaves) {
  const auto body = [](unsigned self, Turns& run) {
    run.log(pass(10), self);
    if (self != 3) return;
    run.succeed([&run] {
      join(3, 50);
      run.log(pass(60), 3);
      leave();
    });
  };
  const std::vector<Event> expected{{10, 0}, {10, 1}, {10, 2}, {10, 3}, {10, 4}, {10, 5}, {60, 3}};
  EXPECT_EQ(Turns::of(&at_once, body), expected);
}

// What the calling participant has started. Where it happens is logged as an event of 100 more than the participant's number.
class Started final : public Later {
 public:
  explicit Started(Turns& run) : run_(run) {}
  void start(Nanoseconds time) { times().push_back(time); }
  [[nodiscard]] Nanoseconds due() const override { return times().empty() ? kNever : times().front(); }
  void happen() override {
    run_.log(times().front(), 100 + participant());
    times().pop_front();
  }

 private:
  static std::deque<Nanoseconds>& times() {
    static thread_local std::deque<Nanoseconds> times;
    return times;
  }
  Turns& run_;
};

TEST(OrderedExecution, WhatOneHasStartedHappensAtItsTime) {
  const auto body = [](unsigned self, Turns& run) {
    // One object for all threads; the first turn is participant 0's.
    static std::optional<Started> started;
    if (self == 0) set_later(&started.emplace(run));
    switch (self) {
      case 0:
        started->start(30);
        started->start(50);
        run.log(pass(40), self);
        // It is made ready while it waits for what it has started, too.
        run.log(wait(), self);
        break;
      case 1:
        run.log(pass(35), self);
        run.log(pass(45), self);
        make_ready(0, 70);
        break;
      case 2:
        run.log(pass(60), self);
        break;
      case 3:
        started->start(80);  // it happens before the participant has left
        break;
      case 4: {
        // One that is made ready earlier than what it has started goes on before that.
        started->start(300);
        run.log(wait(), self);
        break;
      }
      case 5:
        run.log(pass(200), self);
        make_ready(4, 210);
        break;
    }
  };
  const std::vector<Event> expected{{30, 100}, {35, 1},   {40, 0},  {45, 1},  {50, 100}, {60, 2},
                                    {70, 0},   {80, 103}, {200, 5}, {210, 4}, {300, 104}};
  EXPECT_EQ(Turns::of(&at_once, body), expected);
}

}  // namespace
}  // namespace multigrain::ordered
