// This explores barriers on small machines, in every order of every step and message. The network delivers in any
// order.
#include "sync/barrier_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "explore.h"

namespace multigrain::testing {
namespace {

struct Packet {
  bool down;
  uint8_t to;
  uint32_t value;  // an episode, or a number of waiters
  auto operator<=>(const Packet&) const = default;
};

void add(std::vector<Packet>& network, Packet packet) {
  network.insert(std::upper_bound(network.begin(), network.end(), packet), packet);
}

void encode(const std::vector<Packet>& network, std::string& key) {
  for (const Packet& m : network) {
    key += static_cast<char>(m.down);
    key += static_cast<char>(m.to);
    key += static_cast<char>(m.value);
  }
  key += '.';
}

// --- The barrier of all processors.

struct TreeScenario {
  unsigned nodes;
  unsigned radix;
  uint16_t root;
  std::vector<unsigned> processors;  // number of processors of each node
  uint8_t episodes;
  bool forget_flush = false;
  bool gathers = false;
  bool forget_gather = false;
};

struct TreeWorld {
  enum class Phase : char { kRunning, kWaiting, kFlushing, kFlushed, kGathering, kLearning };
  struct Processor {
    uint8_t node;
    Phase phase = Phase::kRunning;
    bool is_last = false;  // of its node, in this episode
    uint8_t arrivals = 0;  // how often it has arrived; an episode number while it waits
  };

  const TreeScenario* scenario;
  std::vector<BarrierNode> node;
  std::vector<Processor> processor;
  std::vector<Packet> network;
  std::vector<uint8_t> flushed;  // ghost: arrivals of the node's processors that its last flush covered
  std::vector<uint8_t> inner;    // for each node, the processors and children that its engine has counted
  // Ghosts: in how many episodes each node has gathered, and learnt.
  std::vector<uint8_t> gathered;
  std::vector<uint8_t> learned;
  std::string violation;

  explicit TreeWorld(const TreeScenario& s)
      : scenario(&s), node(s.nodes), flushed(s.nodes), inner(s.nodes), gathered(s.nodes), learned(s.nodes) {
    for (size_t n = 0; n < s.nodes; ++n)
      for (unsigned i = 0; i < s.processors[n]; ++i) processor.push_back({static_cast<uint8_t>(n)});
  }

  [[nodiscard]] BarrierPlace place(size_t n) const {
    return {NodeId(static_cast<uint16_t>(n)), NodeId(scenario->root), scenario->nodes,
            scenario->processors[n],          scenario->radix,        scenario->gathers};
  }

  void encode(std::string& key) const {
    for (size_t n = 0; n < node.size(); ++n) {
      key += static_cast<char>(node[n].episode());
      key += static_cast<char>(flushed[n]);
      key += static_cast<char>(inner[n]);
      key += static_cast<char>(gathered[n]);
      key += static_cast<char>(learned[n]);
    }
    for (const Processor& p : processor) {
      key += static_cast<char>(p.phase);
      key += static_cast<char>(p.is_last);
      key += static_cast<char>(p.arrivals);
    }
    testing::encode(network, key);
  }

  void perform(size_t n, uint32_t episode, const BarrierActions& a) {
    if (a.gather || a.learn)
      for (Processor& p : processor)
        if (p.node == n && p.is_last) p.phase = a.gather ? Phase::kGathering : Phase::kLearning;
    if (a.send_up) add(network, {false, static_cast<uint8_t>(place(n).parent().value), episode});
    if (!a.released) return;
    inner[n] = 0;
    for (unsigned i = 0; i < place(n).children(); ++i)
      add(network, {true, static_cast<uint8_t>(place(n).child(i).value), episode});
  }

  void run(size_t i) {
    Processor& p = processor[i];
    const size_t n = p.node;
    switch (p.phase) {
      case Phase::kRunning:
        ++p.arrivals;
        ++inner[n];
        p.is_last = node[n].arrive(place(n));
        p.phase = p.is_last ? Phase::kFlushing : Phase::kWaiting;
        break;
      case Phase::kFlushing:
        if (!scenario->forget_flush) flushed[n] = p.arrivals;
        p.phase = Phase::kFlushed;
        break;
      case Phase::kFlushed: {
        const uint32_t episode = node[n].episode();
        inner[n] = static_cast<uint8_t>(inner[n] + 100);
        p.phase = Phase::kWaiting;
        perform(n, episode, node[n].flushed(place(n)));
        break;
      }
      case Phase::kGathering: {
        for (unsigned c = 0; c < place(n).children(); ++c)
          if (gathered[place(n).child(c).value] != p.arrivals) violation = "a node gathered before its child had";
        if (!scenario->forget_gather) ++gathered[n];
        p.phase = Phase::kWaiting;
        const uint32_t episode = node[n].episode();
        perform(n, episode, node[n].gathered(place(n)));
        break;
      }
      case Phase::kLearning: {
        for (uint8_t g : gathered)
          if (g < p.arrivals) violation = "a node learnt before all had gathered";
        if (!place(n).is_root() && learned[place(n).parent().value] < p.arrivals)
          violation = "a node learnt before its parent had";
        ++learned[n];
        p.phase = Phase::kWaiting;
        const uint32_t episode = node[n].episode();
        perform(n, episode, node[n].learned());
        break;
      }
      case Phase::kWaiting:  // it goes on when its node's episode has moved on
        p.phase = Phase::kRunning;
        p.is_last = false;
        if (scenario->gathers && learned[n] < p.arrivals) violation = "a processor left before its node had learnt";
        for (const Processor& other : processor)
          if (other.arrivals < p.arrivals) violation = "a processor left before all had arrived";
        for (uint8_t f : flushed)
          if (f < p.arrivals) violation = "a processor left before all writes were visible";
        break;
    }
  }

  [[nodiscard]] bool can_run(const Processor& p) const {
    if (p.phase == Phase::kWaiting) return node[p.node].episode() >= p.arrivals;
    return p.phase != Phase::kRunning || p.arrivals != scenario->episodes;
  }

  template <typename Visit>
  void steps(Visit&& visit) const {
    for (size_t i = 0; i < processor.size(); ++i) {
      if (!can_run(processor[i])) continue;
      TreeWorld next = *this;
      next.run(i);
      visit(next);
    }
    for (size_t i = 0; i < network.size(); ++i) {
      TreeWorld next = *this;
      next.network.erase(next.network.begin() + static_cast<std::ptrdiff_t>(i));
      const Packet m = network[i];
      if (!m.down) next.inner[m.to] = static_cast<uint8_t>(next.inner[m.to] + 10);
      next.perform(
          m.to, m.value,
          m.down ? next.node[m.to].on_down(place(m.to), m.value) : next.node[m.to].on_up(place(m.to), m.value));
      visit(next);
    }
  }

  [[nodiscard]] std::string check() const {
    for (const BarrierNode& a : node)
      for (const BarrierNode& b : node)
        if (a.episode() > b.episode() + 1) return "a node is two episodes ahead of another";
    return "";
  }
  [[nodiscard]] std::string check_end() const {
    for (const Processor& p : processor)
      if (p.phase != Phase::kRunning || p.arrivals != scenario->episodes) return "a processor waits for ever";
    for (const BarrierNode& n : node)
      if (n.busy() || n.episode() != scenario->episodes) return "an episode was lost";
    return "";
  }
};

TEST(BarrierEngine, EveryOrderInATree) {
  const std::array scenarios = {
      TreeScenario{1, 8, 0, {3}, 3},
      TreeScenario{3, 8, 0, {2, 1, 1}, 3},
      TreeScenario{3, 1, 1, {2, 1, 1}, 3},
      TreeScenario{4, 2, 3, {1, 2, 1, 1}, 2},
      TreeScenario{5, 2, 2, {1, 1, 1, 1, 1}, 2},
  };
  for (TreeScenario scenario : scenarios) {
    for (const bool gathers : {false, true}) {
      scenario.gathers = gathers;
      const Exploration result = explore(TreeWorld(scenario), "barrier of all processors");
      EXPECT_EQ(result.violation, "");
      EXPECT_EQ(result.ends, 1u);
    }
  }
}

TEST(BarrierEngine, ExplorerNoticesAMissingGathering) {
  TreeScenario scenario{3, 1, 0, {2, 1, 1}, 1};
  scenario.gathers = scenario.forget_gather = true;
  EXPECT_EQ(explore(TreeWorld(scenario), "barrier without gathering").violation,
            "a node gathered before its child had");
}

TEST(BarrierEngine, ExplorerNoticesAMissingFlush) {
  TreeScenario scenario{3, 8, 0, {2, 1, 1}, 1};
  scenario.forget_flush = true;
  EXPECT_EQ(explore(TreeWorld(scenario), "barrier without flush").violation,
            "a processor left before all writes were visible");
}

TEST(BarrierEngine, EveryNodeIsInTheTreeOnce) {
  for (unsigned radix : {1u, 2u, 3u, 8u}) {
    for (unsigned nodes = 1; nodes <= 64; ++nodes) {
      for (uint16_t root : {uint16_t{0}, static_cast<uint16_t>(nodes - 1)}) {
        std::vector<unsigned> parents(nodes, 0);
        for (uint16_t n = 0; n < nodes; ++n) {
          const BarrierPlace place{NodeId(n), NodeId(root), nodes, 1, radix};
          ASSERT_LE(place.children(), radix);
          for (unsigned i = 0; i < place.children(); ++i) {
            ++parents[place.child(i).value];
            const BarrierPlace child{place.child(i), NodeId(root), nodes, 1, radix};
            ASSERT_EQ(child.parent(), NodeId(n));
          }
        }
        for (uint16_t n = 0; n < nodes; ++n) ASSERT_EQ(parents[n], n == root ? 0u : 1u);
      }
    }
  }
}

// --- Counted barriers.

struct CountedScenario {
  uint32_t count;
  std::vector<uint8_t> arrivals;  // how often each processor arrives
};

struct CountedWorld {
  static constexpr std::array<uint8_t, 4> kNodeOf = {0, 0, 1, 2};  // the manager is node 1
  enum class Phase : char { kRunning, kSending, kWaiting };
  struct Processor {
    Phase phase = Phase::kRunning;
    uint8_t done = 0;
    uint8_t ticket = 0;
    uint8_t before = 0;  // ghost: episodes that had ended when it arrived
  };

  const CountedScenario* scenario;
  CountedBarrier manager;
  std::array<Processor, 4> processor;
  std::array<uint8_t, 3> tickets{};
  std::array<uint8_t, 3> departed{};
  uint8_t episodes = 0;  // ghost
  uint8_t left = 0;      // ghost: processors that have left
  std::vector<Packet> network;
  std::string violation;

  explicit CountedWorld(const CountedScenario& s) : scenario(&s) {}

  void encode(std::string& key) const {
    for (uint16_t n = 0; n < 3; ++n) {
      key += static_cast<char>(manager.waiting(NodeId(n)));
      key += static_cast<char>(tickets[n]);
      key += static_cast<char>(departed[n]);
    }
    for (const Processor& p : processor) {
      key += static_cast<char>(p.phase);
      key += static_cast<char>(p.done);
      key += static_cast<char>(p.ticket);
      key += static_cast<char>(p.before);
    }
    key += static_cast<char>(episodes);
    testing::encode(network, key);
  }

  void arrive_at_manager(uint8_t from) {
    bool ended = false;
    manager.arrive(scenario->count, NodeId(from), [&](NodeId node, uint16_t waiters) {
      ended = true;
      if (node.value == 1) {
        departed[1] = static_cast<uint8_t>(departed[1] + waiters);
      } else {
        add(network, {true, static_cast<uint8_t>(node.value), waiters});
      }
    });
    if (ended) ++episodes;
  }

  template <typename Visit>
  void steps(Visit&& visit) const {
    for (size_t i = 0; i < processor.size(); ++i) {
      const uint8_t n = kNodeOf[i];
      CountedWorld next = *this;
      Processor& p = next.processor[i];
      switch (p.phase) {
        case Phase::kRunning:
          if (p.done == scenario->arrivals[i]) continue;
          p.ticket = next.tickets[n]++;
          p.before = next.episodes;
          p.phase = Phase::kSending;
          break;
        case Phase::kSending:
          p.phase = Phase::kWaiting;
          if (n == 1) {
            next.arrive_at_manager(n);
          } else {
            add(next.network, {false, 1, n});
          }
          break;
        case Phase::kWaiting:
          if (departed[n] <= p.ticket) continue;
          p.phase = Phase::kRunning;
          ++p.done;
          ++next.left;
          if (next.episodes == p.before) next.violation = "a processor left though no episode ended since it came";
          if (next.left > next.episodes * scenario->count) next.violation = "more processors left than were counted";
          p.ticket = p.before = 0;
          break;
      }
      visit(next);
    }
    for (size_t i = 0; i < network.size(); ++i) {
      CountedWorld next = *this;
      const Packet m = network[i];
      next.network.erase(next.network.begin() + static_cast<std::ptrdiff_t>(i));
      if (m.down) {
        next.departed[m.to] = static_cast<uint8_t>(next.departed[m.to] + m.value);
      } else {
        next.arrive_at_manager(static_cast<uint8_t>(m.value));
      }
      visit(next);
    }
  }

  [[nodiscard]] std::string check() const {
    return manager.arrived() < scenario->count ? "" : "an episode did not end";
  }
  // The order in which processors arrive is open, so at the end fewer than `count` may be left waiting, and no
  // processor else.
  [[nodiscard]] std::string check_end() const {
    size_t waiting = 0;
    for (size_t i = 0; i < processor.size(); ++i) {
      if (processor[i].phase == Phase::kWaiting) {
        ++waiting;
      } else if (processor[i].phase != Phase::kRunning || processor[i].done != scenario->arrivals[i]) {
        return "a processor stopped";
      }
    }
    return waiting == manager.arrived() ? "" : "an arrival was lost";
  }
};

TEST(BarrierEngine, EveryOrderOfCountedArrivals) {
  const std::array scenarios = {
      CountedScenario{1, {2, 1, 1, 1}},
      CountedScenario{2, {2, 2, 2, 2}},
      CountedScenario{3, {2, 2, 2, 3}},
      CountedScenario{3, {3, 0, 3, 3}},
  };
  for (const CountedScenario& scenario : scenarios) {
    const Exploration result = explore(CountedWorld(scenario), "counted barrier");
    EXPECT_EQ(result.violation, "");
    EXPECT_GT(result.ends, 0u);
  }
}

}  // namespace
}  // namespace multigrain::testing
