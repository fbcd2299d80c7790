#include "base/node_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
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

TEST(NodeSetTest, AgreesWithAnOrderedSet) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    NodeSet a, b;
    std::set<uint16_t> model_a, model_b;
    for (int i = 0; i < 60; ++i) {
      const auto node = static_cast<uint16_t>(random() % NodeSet::kCapacity);
      switch (random() % 3) {
        case 0:
          a.insert(NodeId(node));
          model_a.insert(node);
          break;
        case 1:
          b.insert(NodeId(node));
          model_b.insert(node);
          break;
        default:
          a.erase(NodeId(node));
          model_a.erase(node);
      }
    }
    for (uint16_t node = 0; node < NodeSet::kCapacity; ++node) {
      EXPECT_EQ(a.contains(NodeId(node)), model_a.contains(node));
      EXPECT_EQ((a | b).contains(NodeId(node)), model_a.contains(node) || model_b.contains(node));
      EXPECT_EQ((a - b).contains(NodeId(node)), model_a.contains(node) && !model_b.contains(node));
    }
    EXPECT_EQ(a.size(), model_a.size());
    std::vector<uint16_t> visited;
    a.for_each([&](NodeId node) { visited.push_back(node.value); });
    EXPECT_EQ(visited, std::vector<uint16_t>(model_a.begin(), model_a.end()));
  }
}

}  // namespace
}  // namespace multigrain
