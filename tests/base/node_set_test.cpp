#include "base/node_set.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace multigrain {
namespace {

TEST(NodeSetTest, HoldsTheFirstAndTheLastNode) {
  NodeSet set;
  EXPECT_TRUE(set.empty());
  set.insert(NodeId(63));
  set.insert(NodeId(0));
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(set.first(), NodeId(0));
  set.erase(NodeId(0));
  EXPECT_EQ(set.first(), NodeId(63));
  EXPECT_EQ(set, NodeSet::of(NodeId(63)));
  set.clear();
  EXPECT_EQ(set, NodeSet());
}

// The sets are of all three forms.
TEST(NodeSetTest, AgreesWithAnOrderedSet) {
  std::mt19937 random(1);
  for (const unsigned nodes : {10u, 63u, 64u, 70u, 130u, NodeSet::kCapacity}) {
    for (int round = 0; round < 60; ++round) {
      NodeSet a, b;
      std::set<uint16_t> model_a, model_b;
      // Some rounds fill the sets, and some keep them at a few members.
      const unsigned insertions = round % 2 == 0 ? 2 : 1;
      for (int i = 0; i < 60; ++i) {
        const auto node = static_cast<uint16_t>(random() % nodes);
        switch (random() % 4) {
          case 0:
            a.insert(NodeId(node));
            model_a.insert(node);
            break;
          case 1:
            b.insert(NodeId(node));
            model_b.insert(node);
            break;
          default: {
            if (insertions == 2) {
              a.insert(NodeId(node));
              model_a.insert(node);
              break;
            }
            const uint16_t gone = model_a.empty() ? node : *model_a.begin();
            a.erase(NodeId(gone));
            model_a.erase(gone);
          }
        }
        ASSERT_EQ(a.size(), model_a.size());
      }
      const NodeSet both = a | b;
      const NodeSet rest = a - b;
      for (uint16_t node = 0; node < nodes; ++node) {
        EXPECT_EQ(a.contains(NodeId(node)), model_a.contains(node));
        EXPECT_EQ(both.contains(NodeId(node)), model_a.contains(node) || model_b.contains(node));
        EXPECT_EQ(rest.contains(NodeId(node)), model_a.contains(node) && !model_b.contains(node));
      }
      std::vector<uint16_t> visited;
      a.for_each([&](NodeId node) { visited.push_back(node.value); });
      EXPECT_EQ(visited, std::vector<uint16_t>(model_a.begin(), model_a.end()));
      if (!model_a.empty()) {
        EXPECT_EQ(a.first(), NodeId(*model_a.begin()));
      }
      EXPECT_EQ(a == b, model_a == model_b);
      // A set that came to its members in another way is equal.
      NodeSet again;
      for (auto node = model_a.rbegin(); node != model_a.rend(); ++node) again.insert(NodeId(*node));
      EXPECT_EQ(a, again);
      EXPECT_EQ(both, b | a);
      EXPECT_EQ(both - b, rest);
    }
  }
  EXPECT_EQ(NodeSet::bit_maps_in_use(), 0u);
}

TEST(NodeSetTest, CopiesAreIndependent) {
  NodeSet many;
  for (uint16_t node = 0; node < 1000; node += 10) many.insert(NodeId(node));
  EXPECT_EQ(NodeSet::bit_maps_in_use(), 1u);
  NodeSet copy = many;
  EXPECT_EQ(copy, many);
  EXPECT_EQ(NodeSet::bit_maps_in_use(), 2u);
  copy.erase(NodeId(500));
  EXPECT_TRUE(many.contains(NodeId(500)));
  EXPECT_NE(copy, many);
  const NodeSet& self = copy;
  copy = self;
  EXPECT_EQ(copy.size(), 99u);
  NodeSet moved = std::move(copy);
  EXPECT_EQ(moved.size(), 99u);
  many = moved;
  EXPECT_EQ(many, moved);
  many = NodeSet::of(NodeId(1023));
  moved.clear();
  EXPECT_EQ(many.first(), NodeId(1023));
  EXPECT_EQ(NodeSet::bit_maps_in_use(), 0u);
}

TEST(NodeSetTest, BitsAreThoseOfSixtyFourNodes) {
  for (const uint64_t bits : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{3} << 62}) {
    const NodeSet set = NodeSet::of_bits(bits);
    EXPECT_EQ(set.bits(), bits);
    EXPECT_EQ(set.size(), static_cast<unsigned>(std::popcount(bits)));
  }
}

// Threads take bit maps and give them back at the same time.
TEST(NodeSetTest, ThreadsShareThePool) {
  std::vector<std::thread> threads;
  std::atomic<unsigned> wrong{0};
  for (uint16_t t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (int round = 0; round < 300; ++round) {
        NodeSet set;
        for (uint16_t node = t; node < 400; node += 4) set.insert(NodeId(node));
        NodeSet copy = set;
        unsigned members = 0;
        copy.for_each([&](NodeId node) {
          ++members;
          if (node.value % 4 != t) ++wrong;
        });
        if (members != 100) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(NodeSet::bit_maps_in_use(), 0u);
}

}  // namespace
}  // namespace multigrain
