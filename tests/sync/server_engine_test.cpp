// This explores conditions, semaphores and flags in every order of every step and message, on 3 nodes, one with 2
// processors. Channels between two nodes are first-in first-out, as the fabric promises.
#include "sync/server_engine.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "explore.h"

namespace multigrain::testing {
namespace {

constexpr size_t kNodes = 3;
constexpr size_t kProcessors = 4;
constexpr std::array<uint8_t, kProcessors> kNodeOf = {0, 0, 1, 2};
constexpr uint8_t kManager = 1;

// Processors do this, one letter a step. They share an ideal lock and a counter that the lock guards.
//   l, u  lock and unlock          w  wait until the counter is not 0 (a condition wait in a loop); then decrement it
//   +     increment the counter    s, b  signal, broadcast     P, V, T  semaphore wait, post, trywait
//   0-9   set the flag             x-z  wait for the flag to be 1, 2, 3
struct Scenario {
  std::array<std::string, kProcessors> program;
  uint32_t initial = 0;
  bool early_unlock = false;  // breaks condition waits: unlocks before the manager has the waiter
  bool early_signal = false;  // breaks signals: returns before the manager has served them
};

struct Packet {
  bool answer;
  uint8_t processor;
  uint8_t what;    // ServerCall or ServerAnswer
  uint32_t value;  // argument or result
};

struct World {
  enum class Phase : char { kReady, kCalling, kQueued, kWantsLock };
  struct Processor {
    Phase phase = Phase::kReady;
    uint8_t at = 0;
    bool queued = false;  // a condition's manager has answered that the processor waits
    bool served = false;
    uint32_t result = 0;
    uint8_t old_signals = 0;  // ghost: signals that had returned when this condition wait began
  };

  const Scenario* scenario;
  ServerState server;
  std::array<WaiterLink, kProcessors + 1> links{};
  std::array<Processor, kProcessors> processor;
  std::array<std::array<std::vector<Packet>, kNodes>, kNodes> channel;  // [from][to]
  uint8_t holder = 0;                                                   // processor + 1
  uint8_t counter = 0;
  int units = 0;              // ghost: semaphore waits that succeeded minus posts whose call has begun
  uint8_t signals_begun = 0;  // ghosts
  uint8_t signals_returned = 0;
  std::string violation;

  explicit World(const Scenario& s) : scenario(&s), server(ServerState::initial(s.initial)) {}

  void encode(std::string& key) const {
    for (WaiterId w = server.queue().head; w != kNobody; w = links[w.value].next) key += static_cast<char>(w.value);
    key += '.';
    key += static_cast<char>(server.value());
    for (const Processor& p : processor) {
      key += static_cast<char>(p.phase);
      key += static_cast<char>(p.at + 32 * p.queued + 64 * p.served);
      key += static_cast<char>(p.result);
      key += static_cast<char>(p.old_signals);
    }
    key += static_cast<char>(signals_begun);
    key += static_cast<char>(signals_returned);
    key += static_cast<char>(holder);
    key += static_cast<char>(counter);
    key += static_cast<char>(units);
    for (const auto& row : channel) {
      for (const auto& c : row) {
        for (const Packet& m : c) {
          key += static_cast<char>(m.answer);
          key += static_cast<char>(m.processor);
          key += static_cast<char>(m.what);
          key += static_cast<char>(m.value);
        }
        key += '.';
      }
    }
  }

  void serve(size_t p, ServerCall call, uint32_t argument) {
    const bool fits =
        server.serve(links, call, WaiterId(static_cast<uint32_t>(p + 1)), argument,
                     [&](WaiterId waiter, ServerAnswer answer, uint32_t result) {
                       const auto who = static_cast<uint8_t>(waiter.value - 1);
                       if (kNodeOf[who] == kManager) {
                         take(who, answer, result);
                       } else {
                         channel[kManager][kNodeOf[who]].push_back({true, who, static_cast<uint8_t>(answer), result});
                       }
                     });
    if (!fits) violation = "a semaphore overflowed";
  }

  void take(size_t p, ServerAnswer answer, uint32_t result) {
    Processor& who = processor[p];
    if (scenario->early_signal && who.phase == Phase::kReady) return;
    if (who.served || (who.queued && answer == ServerAnswer::kCondQueued)) violation = "a call was answered twice";
    if (who.phase == Phase::kReady) violation = "an answer to no call";
    if (answer == ServerAnswer::kCondQueued) {
      who.queued = true;
    } else {
      who.served = true;
      who.result = result;
    }
  }

  void call(size_t p, ServerCall what, uint32_t argument = 0) {
    processor[p].phase = Phase::kCalling;
    if (kNodeOf[p] == kManager) {
      serve(p, what, argument);
    } else {
      channel[kNodeOf[p]][kManager].push_back({false, static_cast<uint8_t>(p), static_cast<uint8_t>(what), argument});
    }
  }

  void finish(size_t p) {
    Processor& who = processor[p];
    who = {Phase::kReady, static_cast<uint8_t>(who.at + 1)};
  }

  // Runs one step of processor p. Returns false if it cannot go on.
  bool run(size_t p) {
    Processor& who = processor[p];
    const std::string& program = scenario->program[p];
    if (who.at == program.size()) return false;
    const char step = program[who.at];
    switch (who.phase) {
      case Phase::kReady:
        if (step == 'l' && holder != 0) return false;
        start(p, step);
        return true;
      case Phase::kCalling:
        if (step == 'w') {
          if (!who.queued && !scenario->early_unlock) return false;
          holder = 0;
          who.phase = Phase::kQueued;
          return true;
        }
        if (!who.served && !(scenario->early_signal && step == 's')) return false;
        if (step == 's' || step == 'b') ++signals_returned;
        if (step == 'P' || (step == 'T' && who.result == 1)) ++units;
        finish(p);
        return true;
      case Phase::kQueued:
        if (!who.served) return false;
        if (signals_begun == who.old_signals) violation = "a waiter was woken by a signal from before it waited";
        who = {Phase::kWantsLock, who.at};
        return true;
      case Phase::kWantsLock:
        if (holder != 0) return false;
        holder = static_cast<uint8_t>(p + 1);
        who.phase = Phase::kReady;
        return true;
    }
    return false;
  }

  void start(size_t p, char step) {
    switch (step) {
      case 'l':
        holder = static_cast<uint8_t>(p + 1);
        finish(p);
        break;
      case 'u':
        holder = 0;
        finish(p);
        break;
      case '+':
        ++counter;
        finish(p);
        break;
      case 'w':
        if (counter != 0) {
          --counter;
          finish(p);
        } else {
          processor[p].old_signals = signals_returned;
          call(p, ServerCall::kCondWait);
        }
        break;
      case 's':
        ++signals_begun;
        call(p, ServerCall::kCondSignal);
        break;
      case 'b':
        ++signals_begun;
        call(p, ServerCall::kCondBroadcast);
        break;
      case 'P':
        call(p, ServerCall::kSemWait);
        break;
      case 'T':
        call(p, ServerCall::kSemTryWait);
        break;
      case 'V':
        --units;
        call(p, ServerCall::kSemPost);
        break;
      default:
        if (step >= '0' && step <= '9') {
          call(p, ServerCall::kFlagSet, static_cast<uint32_t>(step - '0'));
        } else {
          call(p, ServerCall::kFlagWait, static_cast<uint32_t>(step - 'x' + 1));
        }
    }
  }

  template <typename Visit>
  void steps(Visit&& visit) const {
    for (size_t p = 0; p < kProcessors; ++p) {
      World next = *this;
      if (next.run(p)) visit(next);
    }
    for (size_t from = 0; from < kNodes; ++from) {
      for (size_t to = 0; to < kNodes; ++to) {
        if (channel[from][to].empty()) continue;
        World next = *this;
        const Packet m = channel[from][to].front();
        next.channel[from][to].erase(next.channel[from][to].begin());
        if (m.answer) {
          next.take(m.processor, static_cast<ServerAnswer>(m.what), m.value);
        } else {
          next.serve(m.processor, static_cast<ServerCall>(m.what), m.value);
        }
        visit(next);
      }
    }
  }

  [[nodiscard]] std::string check() const {
    return units > static_cast<int>(scenario->initial) ? "more units were taken than there are" : "";
  }
  [[nodiscard]] std::string check_end() const {
    for (size_t p = 0; p < kProcessors; ++p)
      if (processor[p].at != scenario->program[p].size()) return "a processor waits for ever";
    return server.waited_for() ? "somebody is left in the queue" : "";
  }
};

void expect_sound(const Scenario& scenario, const char* name) {
  const Exploration result = explore(World(scenario), name);
  EXPECT_EQ(result.violation, "") << name;
  EXPECT_GT(result.ends, 0u);
}

TEST(ServerEngine, NoSignalIsLost) {
  expect_sound({{"lwu", "l+su", "lwu", "l+su"}}, "condition, signal under the lock");
  expect_sound({{"l+us", "lwu", "lwu", "l+us"}}, "condition, signal after the lock");
  expect_sound({{"lwu", "lwu", "lwu", "l+++bu"}}, "condition, broadcast");
}

TEST(ServerEngine, ExplorerNoticesAnEarlyUnlock) {
  Scenario scenario{{"lwu", "", "", "l+su"}};
  scenario.early_unlock = true;
  EXPECT_EQ(explore(World(scenario), "condition, unlocked too early").violation, "a processor waits for ever");
}

TEST(ServerEngine, ExplorerNoticesASignalThatDoesNotWait) {
  Scenario scenario{{"l+u", "", "lwu", "s"}};
  scenario.early_signal = true;
  EXPECT_EQ(explore(World(scenario), "condition, signals not answered").violation,
            "a waiter was woken by a signal from before it waited");
}

TEST(ServerEngine, SemaphoreCounts) {
  expect_sound({{"PV", "PV", "PV", "PVPV"}, 1}, "semaphore as a lock");
  expect_sound({{"PP", "VV", "P", "VTV"}, 1}, "semaphore, producers and consumers");
}

TEST(ServerEngine, FlagWakesWhoeverWaitsForItsValue) {
  expect_sound({{"x", "x", "x", "1"}}, "flag, three waiters");
  expect_sound({{"x2", "y3", "z", "1"}}, "flag, a chain of values");
}

TEST(ServerEngine, FlagThatHadTheValueForAMoment) {
  std::array<WaiterLink, kProcessors + 1> links{};
  ServerState flag;
  std::vector<std::pair<uint32_t, uint32_t>> answers;
  const auto serve = [&](ServerCall call, uint32_t caller, uint32_t argument) {
    EXPECT_TRUE(flag.serve(links, call, WaiterId(caller), argument,
                           [&](WaiterId w, ServerAnswer, uint32_t result) { answers.emplace_back(w.value, result); }));
  };
  serve(ServerCall::kFlagWait, 1, 7);
  serve(ServerCall::kFlagWait, 2, 8);
  EXPECT_TRUE(answers.empty());
  serve(ServerCall::kFlagSet, 3, 7);
  serve(ServerCall::kFlagSet, 3, 0);
  EXPECT_EQ(answers, (std::vector<std::pair<uint32_t, uint32_t>>{{1, 7}, {3, 0}, {3, 0}}));
  answers.clear();
  serve(ServerCall::kFlagGet, 4, 0);
  serve(ServerCall::kFlagSet, 3, 8);
  EXPECT_EQ(answers, (std::vector<std::pair<uint32_t, uint32_t>>{{4, 0}, {2, 8}, {3, 0}}));
  EXPECT_FALSE(flag.waited_for());
}

TEST(ServerEngine, SemaphoreDoesNotWrapAround) {
  std::array<WaiterLink, kProcessors + 1> links{};
  ServerState sem = ServerState::initial(UINT32_MAX);
  EXPECT_FALSE(sem.serve(links, ServerCall::kSemPost, WaiterId(1), 0, [](WaiterId, ServerAnswer, uint32_t) {}));
  EXPECT_EQ(sem.value(), UINT32_MAX);
}

}  // namespace
}  // namespace multigrain::testing
