// This explores the lock protocol on a machine of 3 nodes, one with 2 processors, in every order of every step and
// message. The network delivers in any order, which is more than it really does.
#include "sync/lock_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "explore.h"
#include "support/effort.h"

namespace multigrain::testing {
namespace {

constexpr size_t kNodes = 3;
constexpr size_t kProcessors = 4;
constexpr std::array<uint8_t, kProcessors> kNodeOf = {0, 0, 1, 2};

enum class Phase : char {
  kIdle,
  kWaiting,
  kTrying,    // it waits for the answer to a try
  kInside,    // it has the lock and has written under it
  kFlushing,  // it unlocks; no processor of its node waits, so it must flush
  kFlushed,
};

enum class Type : char { kRequest, kForward, kToken, kBusy };

struct Packet {
  Type type;
  uint8_t from;
  uint8_t to;
  uint8_t next;
  uint32_t attempt;
  auto operator<=>(const Packet&) const = default;
};

struct Scenario {
  uint16_t manager = 0;
  uint16_t bound = 1;
  // This is what each processor does: L is lock and unlock, T is a try, and an unlock if it succeeded.
  std::array<std::string, kProcessors> program;
  bool forget_flush = false;  // breaks the protocol, to see that the explorer would notice
  bool forget_bound = false;
  bool forget_attempt = false;  // takes every BUSY for the answer to the present attempt
  bool forget_busy = false;     // sends no BUSY
};

struct World {
  const Scenario* scenario;
  std::array<LockState, kNodes> node;
  std::array<WaiterLink, kProcessors + 1> links{};
  std::array<Phase, kProcessors> phase{};
  std::array<uint8_t, kProcessors> done{};
  std::vector<Packet> network;
  std::array<bool, kNodes> dirty{};
  // These are ghosts: how often a processor got the lock while another node was known to wait, and the order of
  // requests.
  std::array<uint8_t, kNodes> grants{};
  std::vector<uint8_t> asked;
  // This says of each try under way that when it began all other processors were idle and the token was at rest, and
  // that no processor has begun since.
  std::array<bool, kProcessors> alone{};
  bool taken = false;  // some processor had the lock at some time
  std::string violation;

  explicit World(const Scenario& s) : scenario(&s) {
    for (uint16_t n = 0; n < kNodes; ++n) node[n] = LockState::initial(place(n));
  }

  [[nodiscard]] LockPlace place(size_t n) const {
    return {NodeId(static_cast<uint16_t>(n)), NodeId(scenario->manager), scenario->bound};
  }

  void encode(std::string& key) const {
    for (const LockState& n : node) {
      key += static_cast<char>(n.here() + 2 * n.held() + 4 * n.requested() + 8 * n.has_next() + 16 * n.unanswered());
      key += static_cast<char>(n.next().value);
      key += static_cast<char>(n.tail().value);
      key += static_cast<char>(n.hand_ons());
      key += static_cast<char>(n.attempt());
      for (WaiterId w = n.queue().head; w != kNobody; w = links[w.value].next) key += static_cast<char>(w.value);
      key += '.';
    }
    for (size_t p = 0; p < kProcessors; ++p) {
      key += static_cast<char>(phase[p]);
      key += static_cast<char>(done[p]);
      key += static_cast<char>(alone[p]);
    }
    key += static_cast<char>(taken);
    for (size_t n = 0; n < kNodes; ++n) {
      key += static_cast<char>(dirty[n]);
      key += static_cast<char>(grants[n]);
    }
    for (const Packet& m : network) {
      key += static_cast<char>(m.type);
      key += static_cast<char>(m.from);
      key += static_cast<char>(m.to);
      key += static_cast<char>(m.next);
      key += static_cast<char>(m.attempt);
    }
    key += '.';
    key.append(asked.begin(), asked.end());
  }

  void post(Packet packet) { network.insert(std::upper_bound(network.begin(), network.end(), packet), packet); }

  void enter(size_t p) {
    const size_t n = kNodeOf[p];
    phase[p] = Phase::kInside;
    taken = true;
    dirty[n] = true;
    if (node[n].has_next() && ++grants[n] > scenario->bound + 1)
      violation = "a node kept the lock beyond the bound while another waited";
  }

  void fail_try(size_t p) {
    if (alone[p]) violation = "a try of a lock that nobody else wanted failed";
    phase[p] = Phase::kIdle;
    alone[p] = false;
    ++done[p];
  }

  void perform(size_t n, const LockActions& a) {
    const auto self = static_cast<uint8_t>(n);
    if (a.wake != kNobody) {
      const size_t p = a.wake.value - 1;
      if (kNodeOf[p] != n || (phase[p] != Phase::kWaiting && phase[p] != Phase::kTrying))
        violation = "woke a processor that does not wait";
      enter(p);
    }
    for (WaiterQueue refused = a.refused; !refused.empty();) {
      const size_t p = refused.pop(links).value - 1;
      if (kNodeOf[p] != n || phase[p] != Phase::kTrying) violation = "refused a processor that does not try";
      fail_try(p);
    }
    if (a.send_token) {
      if (dirty[n]) violation = "the lock left a node before its writes were visible";
      if (asked.empty() || asked.front() != a.token_to.value) {
        violation = "nodes did not get the lock in the order of their requests";
      } else {
        asked.erase(asked.begin());
      }
      grants[n] = 0;
      post({Type::kToken, self, static_cast<uint8_t>(a.token_to.value), 0, 0});
    }
    if (a.send_request) post({Type::kRequest, self, static_cast<uint8_t>(scenario->manager), 0, a.attempt});
    if (a.send_busy && !scenario->forget_busy)
      post({Type::kBusy, self, static_cast<uint8_t>(a.busy_to.value), 0, a.attempt});
    if (a.send_forward)
      post({Type::kForward, self, static_cast<uint8_t>(a.forward_to.value), static_cast<uint8_t>(a.forward_next.value),
            a.attempt});
  }

  // A request of the manager's own node reaches the manager as it is made.
  void note_own_request(size_t n, bool before) {
    if (n == scenario->manager && !before && node[n].requested()) asked.push_back(static_cast<uint8_t>(n));
  }

  void run(size_t p) {
    const size_t n = kNodeOf[p];
    const bool requested = node[n].requested();
    switch (phase[p]) {
      case Phase::kIdle: {
        const bool only_try = scenario->program[p][done[p]] == 'T';
        const WaiterId waiter(static_cast<uint32_t>(p + 1));
        alone = {};
        alone[p] = only_try && token_rests() &&
                   std::all_of(phase.begin(), phase.end(), [](Phase other) { return other == Phase::kIdle; });
        const LockActions a =
            only_try ? node[n].try_acquire(place(n), links, waiter) : node[n].acquire(place(n), links, waiter);
        note_own_request(n, requested);
        if (a.granted) {
          enter(p);
        } else if (a.queued) {
          phase[p] = only_try ? Phase::kTrying : Phase::kWaiting;
        } else if (only_try) {
          fail_try(p);
        } else {
          violation = "a processor that wants the lock was forgotten";
        }
        perform(n, a);
        break;
      }
      case Phase::kInside: {
        LockActions a;
        LockPlace where = place(n);
        if (scenario->forget_bound) where.handoff_bound = UINT16_MAX;
        if (node[n].wanted() && node[n].try_hand_on(where, links, a)) {
          phase[p] = Phase::kIdle;
          ++done[p];
          perform(n, a);
        } else {
          phase[p] = Phase::kFlushing;
        }
        break;
      }
      case Phase::kFlushing:
        if (!scenario->forget_flush) dirty[n] = false;
        phase[p] = Phase::kFlushed;
        break;
      case Phase::kFlushed: {
        phase[p] = Phase::kIdle;
        ++done[p];
        const LockActions a = node[n].unlock_flushed(place(n), links);
        // The token goes before the node asks again, as `asked` must see it.
        LockActions first = a;
        first.send_request = first.send_forward = false;
        perform(n, first);
        note_own_request(n, requested);
        LockActions second;
        second.send_request = a.send_request;
        second.send_forward = a.send_forward;
        second.forward_to = a.forward_to;
        second.forward_next = a.forward_next;
        second.attempt = a.attempt;
        perform(n, second);
        break;
      }
      case Phase::kWaiting:
      case Phase::kTrying:
        break;
    }
  }

  void deliver(size_t i) {
    const Packet m = network[i];
    network.erase(network.begin() + static_cast<std::ptrdiff_t>(i));
    switch (m.type) {
      case Type::kRequest:
        asked.push_back(m.from);
        perform(m.to, node[m.to].on_request(place(m.to), NodeId(m.from), m.attempt));
        break;
      case Type::kForward:
        perform(m.to, node[m.to].on_forward(place(m.to), NodeId(m.next), m.attempt));
        break;
      case Type::kToken:
        perform(m.to, node[m.to].on_token(place(m.to), links));
        break;
      case Type::kBusy:
        perform(m.to, node[m.to].on_busy(links, scenario->forget_attempt ? node[m.to].attempt() : m.attempt));
        break;
    }
  }

  [[nodiscard]] bool token_rests() const {
    return std::any_of(node.begin(), node.end(), [](const LockState& n) { return n.here() && !n.held(); });
  }

  // Returns whether a message is under way that is, or brings about, the answer to the try of a node. Handlers do not
  // wait, so a try for which this always holds ends without a step of any processor.
  [[nodiscard]] bool answer_under_way(size_t n) const {
    const uint32_t attempt = node[n].attempt();
    return std::any_of(network.begin(), network.end(), [&](const Packet& m) {
      return (m.type == Type::kRequest && m.from == n && m.attempt == attempt) ||
             (m.type == Type::kForward && m.next == n && m.attempt == attempt) ||
             (m.type == Type::kBusy && m.to == n && m.attempt == attempt) || (m.type == Type::kToken && m.to == n);
    });
  }

  template <typename Visit>
  void steps(Visit&& visit) const {
    for (size_t p = 0; p < kProcessors; ++p) {
      if (phase[p] == Phase::kWaiting || phase[p] == Phase::kTrying ||
          (phase[p] == Phase::kIdle && done[p] == scenario->program[p].size()))
        continue;
      World next = *this;
      next.run(p);
      visit(next);
    }
    for (size_t i = 0; i < network.size(); ++i) {
      World next = *this;
      next.deliver(i);
      visit(next);
    }
  }

  [[nodiscard]] std::string check() const {
    size_t tokens = 0;
    for (size_t n = 0; n < kNodes; ++n) {
      size_t inside = 0;
      for (size_t p = 0; p < kProcessors; ++p) inside += kNodeOf[p] == n && phase[p] >= Phase::kInside;
      if (inside > 1) return "two processors of a node have the lock";
      if ((inside == 1) != node[n].held()) return "held disagrees with who has the lock";
      if (node[n].held() && !node[n].here()) return "held without the token";
      if (!node[n].held() && dirty[n]) return "I1: the lock is free and its writes are not visible";
      if (node[n].here() && !node[n].held() && node[n].wanted()) return "the lock is free though somebody wants it";
      tokens += node[n].here();
    }
    for (size_t p = 0; p < kProcessors; ++p) {
      if (phase[p] != Phase::kTrying) continue;
      if (!node[kNodeOf[p]].unanswered()) return "I2: a try waits though its node has its answer";
      if (!answer_under_way(kNodeOf[p])) return "a try waits for something else than messages";
    }
    for (const Packet& m : network) tokens += m.type == Type::kToken;
    return tokens == 1 ? "" : "there is not exactly one token";
  }

  [[nodiscard]] std::string check_end() const {
    for (size_t p = 0; p < kProcessors; ++p)
      if (phase[p] != Phase::kIdle || done[p] != scenario->program[p].size()) return "a processor waits for ever";
    for (const LockState& n : node)
      if (n.requested() || n.wanted()) return "a request was not answered";
    if (!asked.empty()) return "a request was not answered";
    return taken ? "" : "everybody tried and nobody succeeded";
  }
};

Exploration explore_lock(const Scenario& setup, const char* name) {
  return explore(World(setup), name);
}

TEST(LockEngine, EveryOrderOfLocksAndUnlocks) {
  for (uint16_t manager : {uint16_t{0}, uint16_t{1}}) {
    for (uint16_t bound : {uint16_t{1}, uint16_t{2}}) {
      const Scenario setup{manager, bound, {"LLL", "LLL", "LL", "LL"}};
      const Exploration result =
          explore_lock(setup, manager == 0 ? "lock, manager has 2 processors" : "lock, manager has 1 processor");
      EXPECT_EQ(result.violation, "");
      EXPECT_GT(result.states, 5'000u);
      EXPECT_GT(result.ends, 0u);
    }
  }
}

TEST(LockEngine, EveryOrderWithTries) {
  for (uint16_t manager : {uint16_t{0}, uint16_t{2}}) {
    const Scenario setup{manager, 1, {"TL", "T", "LT", "TT"}};
    const Exploration result = explore_lock(setup, "lock with tries");
    EXPECT_EQ(result.violation, "");
    EXPECT_GT(result.states, 5'000u);
    EXPECT_GT(result.ends, 0u);
  }
}

// Here no lock() waits that could mend what a try left behind. The last resting states show that some processor always
// succeeds.
TEST(LockEngine, EveryOrderOfTriesAlone) {
  for (uint16_t manager : {uint16_t{0}, uint16_t{2}}) {
    for (const auto& program : {std::array<std::string, kProcessors>{"T", "T", "T", "T"},
                                std::array<std::string, kProcessors>{"TT", "T", "TT", "TT"}}) {
      if (kHasSanitizer && program[0] == "TT") continue;
      const Exploration result = explore_lock({manager, 1, program}, "tries alone");
      EXPECT_EQ(result.violation, "");
      EXPECT_GT(result.states, 500u);
      EXPECT_GT(result.ends, 0u);
    }
  }
}

TEST(LockEngine, ExplorerNoticesAnAnswerToAnotherAttempt) {
  Scenario setup{0, 1, {"TLT", "LT", "TLT", "TTL"}};
  setup.forget_attempt = true;
  EXPECT_NE(explore_lock(setup, "tries without numbers").violation, "");
}

TEST(LockEngine, ExplorerNoticesAMissingAnswer) {
  Scenario setup{0, 1, {"T", "", "T", ""}};
  setup.forget_busy = true;
  EXPECT_EQ(explore_lock(setup, "tries without BUSY").violation, "a try waits for something else than messages");
}

TEST(LockEngine, ExplorerNoticesAMissingFlush) {
  Scenario setup{0, 1, {"L", "L", "L", "L"}};
  setup.forget_flush = true;
  EXPECT_NE(explore_lock(setup, "lock without flush").violation, "");
}

TEST(LockEngine, ExplorerNoticesAMissingBound) {
  Scenario setup{0, 1, {"LLLL", "LLLL", "L", "L"}};
  setup.forget_bound = true;
  EXPECT_EQ(explore_lock(setup, "lock without bound").violation,
            "a node kept the lock beyond the bound while another waited");
}

TEST(LockEngine, TokenStaysWhereItWasUsed) {
  const LockPlace manager{NodeId(0), NodeId(0), 16};
  const LockPlace other{NodeId(1), NodeId(0), 16};
  std::array<WaiterLink, 3> links{};
  LockState a = LockState::initial(manager);
  LockState b = LockState::initial(other);

  EXPECT_TRUE(b.acquire(other, links, WaiterId(1)).send_request);
  const LockActions passed = a.on_request(manager, NodeId(1), 0);
  EXPECT_TRUE(passed.send_token);
  EXPECT_EQ(passed.token_to, NodeId(1));
  EXPECT_EQ(b.on_token(other, links).wake, WaiterId(1));
  LockActions nothing = b.unlock_flushed(other, links);
  EXPECT_FALSE(nothing.send_token);
  EXPECT_TRUE(b.acquire(other, links, WaiterId(1)).granted);
}

TEST(LockEngine, BusyOvertakenByTheTokenAnswersNothing) {
  const LockPlace manager{NodeId(0), NodeId(0), 16};
  const LockPlace other{NodeId(1), NodeId(0), 16};
  std::array<WaiterLink, 3> links{};
  LockState a = LockState::initial(manager);
  LockState b = LockState::initial(other);

  EXPECT_TRUE(a.acquire(manager, links, WaiterId(1)).granted);
  const LockActions first = b.try_acquire(other, links, WaiterId(1));
  EXPECT_TRUE(first.send_request && first.queued);
  const LockActions busy = a.on_request(manager, NodeId(1), first.attempt);
  EXPECT_TRUE(busy.send_busy && !busy.send_token);
  EXPECT_EQ(busy.busy_to, NodeId(1));
  EXPECT_EQ(busy.attempt, first.attempt);
  EXPECT_TRUE(a.unlock_flushed(manager, links).send_token);
  EXPECT_EQ(b.on_token(other, links).wake, WaiterId(1));
  EXPECT_FALSE(b.unlock_flushed(other, links).send_token);
  EXPECT_TRUE(b.on_forward(other, NodeId(0), 0).send_token);

  // The second attempt is not refused by the answer to the first, but by its own.
  const LockActions second = b.try_acquire(other, links, WaiterId(1));
  EXPECT_TRUE(b.on_busy(links, first.attempt).refused.empty());
  EXPECT_TRUE(b.unanswered());
  const LockActions third = b.try_acquire(other, links, WaiterId(2));
  EXPECT_TRUE(third.queued && !third.send_request);
  LockActions answered = b.on_busy(links, second.attempt);
  EXPECT_EQ(answered.refused.pop(links), WaiterId(1));
  EXPECT_EQ(answered.refused.pop(links), WaiterId(2));
  EXPECT_TRUE(answered.refused.empty());
  // The request is still out: a try fails at once, and the token comes to rest.
  const LockActions fourth = b.try_acquire(other, links, WaiterId(1));
  EXPECT_FALSE(fourth.granted || fourth.queued || fourth.send_request);
  EXPECT_EQ(b.on_token(other, links).wake, kNobody);
  EXPECT_TRUE(b.try_acquire(other, links, WaiterId(1)).granted);
}

TEST(LockEngineDeathTest, MessagesThatCannotBe) {
  const LockPlace place{NodeId(1), NodeId(0), 16};
  std::array<WaiterLink, 3> links{};
  EXPECT_DEATH(
      {
        LockState state = LockState::initial(place);
        state.on_token(place, links);
      },
      "invariant broken");
  EXPECT_DEATH(
      {
        LockState state = LockState::initial(place);
        state.on_forward(place, NodeId(2), 0);
      },
      "invariant broken");
  for (const uint32_t attempt : {0u, 1u, 1u << 30}) {
    EXPECT_DEATH(
        {
          LockState state = LockState::initial(place);
          state.on_busy(links, attempt);
        },
        "invariant broken");
  }
}

TEST(WaiterQueue, EarliestInVirtualTimeFirst) {
  std::array<WaiterLink, 8> links{};
  WaiterQueue queue;
  queue.push(links, WaiterId(1), 0, 50);
  queue.push(links, WaiterId(2), 0, 70);
  queue.push(links, WaiterId(3), 0, 20);
  queue.push(links, WaiterId(4), 0, 50);
  queue.push(links, WaiterId(5), 0, 90);
  for (const uint32_t expected : {3u, 1u, 4u, 2u, 5u}) EXPECT_EQ(queue.pop(links), WaiterId(expected));
  EXPECT_TRUE(queue.empty());
  queue.push(links, WaiterId(6), 0, 10);
  EXPECT_EQ(queue.pop(links), WaiterId(6));
}

TEST(WaiterQueue, FirstInFirstOut) {
  std::array<WaiterLink, 6> links{};
  WaiterQueue queue;
  for (uint32_t w : {3u, 1u, 5u}) queue.push(links, WaiterId(w), w % 2 == 1 && w > 2 ? 7u : 8u);
  std::vector<uint32_t> taken;
  queue.take_wanting(links, 7, [&](WaiterId w) { taken.push_back(w.value); });
  EXPECT_EQ(taken, (std::vector<uint32_t>{3, 5}));
  queue.push(links, WaiterId(2));
  EXPECT_EQ(queue.pop(links), WaiterId(1));
  EXPECT_EQ(queue.pop(links), WaiterId(2));
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace multigrain::testing
