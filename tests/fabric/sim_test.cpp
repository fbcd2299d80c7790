#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/sim_fabric.h"

namespace multigrain {
namespace {

constexpr MessageType kType = message_range::kTest;

// These are three nodes that append the messages they handle to one trace. Each message is answered until its count
// runs out.
struct Chatter {
  explicit Chatter(uint64_t seed) : network({.nodes = 3, .seed = seed}) {
    for (uint16_t n = 0; n < 3; ++n) {
      contexts[n] = {this, NodeId(n)};
      network.node(NodeId(n)).set_handler(
          kType,
          [](void* context, const Message& message) {
            const auto& [self, node] = *static_cast<std::pair<Chatter*, NodeId>*>(context);
            self->trace += fmt::format("{}>{}:{} ", message.from.value, node.value, message.header.word[0]);
            if (message.header.word[0] == 0) return;
            MessageHeader answer = message.header;
            --answer.word[0];
            self->network.node(node).send(message.from, answer, SendContext::kHandler);
          },
          &contexts[n]);
    }
    for (uint16_t from = 0; from < 3; ++from) {
      for (uint16_t to = 0; to < 3; ++to) {
        if (from != to)
          network.node(NodeId(from)).send(NodeId(to), {.type = kType, .word = {3}}, SendContext::kOrdinary);
      }
    }
  }
  SimNetwork network;
  std::array<std::pair<Chatter*, NodeId>, 3> contexts;
  std::string trace;
};

TEST(SimNetwork, ASeedIsARun) {
  std::set<std::string> runs;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Chatter first(seed);
    Chatter second(seed);
    EXPECT_EQ(first.network.run(), 24u);
    EXPECT_EQ(second.network.run(), 24u);
    EXPECT_EQ(first.trace, second.trace);
    runs.insert(first.trace);
  }
  EXPECT_GT(runs.size(), 15u) << "seeds hardly change the order";
}

TEST(SimNetwork, TheTestChoosesTheOrder) {
  Chatter chatter(1);
  EXPECT_EQ(chatter.network.deliverable().size(), 6u);
  EXPECT_TRUE(chatter.network.deliver(NodeId(2), NodeId(1)));
  EXPECT_TRUE(chatter.network.deliver(NodeId(1), NodeId(2)));
  EXPECT_EQ(chatter.trace, "2>1:3 1>2:3 ");
  EXPECT_TRUE(chatter.network.deliver(NodeId(1), NodeId(2)));  // the answer
  EXPECT_EQ(chatter.trace, "2>1:3 1>2:3 1>2:2 ");
  EXPECT_EQ(chatter.network.pending_count(), chatter.network.pending().size());
}

TEST(SimNetwork, PollDeliversOnlyWhereAsked) {
  SimNetwork manual({.nodes = 2});
  SimNetwork random({.nodes = 2, .poll = SimNetwork::PollMode::kRandomStep});
  for (SimNetwork* network : {&manual, &random}) {
    network->node(NodeId(1)).set_handler(kType, [](void*, const Message&) {}, nullptr);
    network->node(NodeId(0)).send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  }
  EXPECT_EQ(manual.node(NodeId(0)).poll(), 0u);
  EXPECT_EQ(manual.pending_count(), 1u);
  EXPECT_EQ(random.node(NodeId(0)).poll(), 1u);
  EXPECT_EQ(random.pending_count(), 0u);
}

TEST(SimNetwork, TheHookRunsBetweenRemoteOperations) {
  // Two nodes increment a word by get and put: the hook puts one's whole increment between the other's two halves.
  SimNetwork network({.nodes = 3});
  const auto increment = [&](NodeId node) {
    uint64_t value = 0;
    const auto bytes = std::as_writable_bytes(std::span(&value, 1));
    network.node(node).get(NodeId(0), SegmentId::kWords, 8, bytes);
    ++value;
    network.node(node).put(NodeId(0), SegmentId::kWords, 8, bytes);
  };
  std::vector<SimNetwork::Operation::Kind> seen;
  network.set_operation_hook([&](const SimNetwork::Operation& operation) {
    seen.push_back(operation.kind);
    if (operation.by == NodeId(1) && operation.kind == SimNetwork::Operation::Kind::kPut) increment(NodeId(2));
  });
  increment(NodeId(1));
  using enum SimNetwork::Operation::Kind;
  EXPECT_EQ(seen, (std::vector{kGet, kPut, kGet, kPut}));
  EXPECT_EQ(network.node(NodeId(0)).fetch_add(NodeId(0), SegmentId::kWords, 8, 0), 1u) << "the lost update must show";
  EXPECT_EQ(seen.size(), 4u) << "a node's own memory is not remote";
}

TEST(SimNetwork, SlicesAreReadAtDelivery) {
  SimNetwork network({.nodes = 2});
  struct Context {
    SimNetwork* network;
    std::byte read{};
  } context{&network, {}};
  network.node(NodeId(1)).set_handler(
      kType,
      [](void* c, const Message& message) {
        auto& self = *static_cast<Context*>(c);
        self.network->node(NodeId(1)).fetch(message, {&self.read, 1});
      },
      &context);
  network.node(NodeId(0)).send(NodeId(1), {.type = kType}, {}, {SegmentId::kFrames, 10, 1}, SendContext::kOrdinary);
  network.segment(NodeId(0), SegmentId::kFrames)[10] = std::byte{7};
  network.run();
  EXPECT_EQ(context.read, std::byte{7});
}

TEST(SimNetwork, UsesTheTestsMemory) {
  SimNetwork network({.nodes = 2});
  std::vector<uint64_t> mine(4);
  network.export_segment(NodeId(1), SegmentId::kFrames, std::as_writable_bytes(std::span(mine)));
  network.node(NodeId(0)).fetch_add(NodeId(1), SegmentId::kFrames, 24, 5);
  EXPECT_EQ(mine[3], 5u);
  EXPECT_DEATH(network.node(NodeId(0)).fetch_add(NodeId(1), SegmentId::kFrames, 32, 5), "outside");
}

TEST(SimNetworkDeath, ANetworkThatNeverRestsIsReported) {
  SimNetwork network({.nodes = 2});
  for (uint16_t n = 0; n < 2; ++n) {
    network.node(NodeId(n)).set_handler(
        kType,
        [](void* fabric, const Message& message) {
          static_cast<SimFabric*>(fabric)->send(message.from, message.header, SendContext::kHandler);
        },
        &network.node(NodeId(n)));
  }
  network.node(NodeId(0)).send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  EXPECT_DEATH(network.run(1000), "does not come to rest");
}

}  // namespace
}  // namespace multigrain
