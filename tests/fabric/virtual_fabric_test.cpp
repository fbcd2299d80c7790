// These test the arithmetic of the emulated network on the simulated fabric, which shows when each message arrives. The
// calling thread is a processor whose clock stands, so that every time is exact.
#include "fabric/emulation/virtual_fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "profile/virtual_time.h"
#include "support/sim_fabric.h"

namespace multigrain {
namespace {

constexpr MessageType kType = message_range::kTest;
constexpr MessageType kReply = message_range::kTest + 1;

class VirtualFabricTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static std::array<virtual_time::ProcessorClock, 2> clocks{};
    static std::atomic<uint32_t> sleepers{0};
    virtual_time::start({.processors = clocks, .sleepers = &sleepers, .order = {}}, {.processors = 2});
    virtual_time::adopt(0);
  }
  VirtualFabric make(NodeId node, const NetworkModel& model) {
    return {std::make_unique<ForwardingFabric>(network_.node(node)), model, states_};
  }
  std::vector<Nanoseconds> arrivals() {
    std::vector<Nanoseconds> times;
    for (const auto* message : network_.pending()) times.push_back(message->not_before - start_);
    return times;
  }
  // The clock only grows, from test to test, too.
  const Nanoseconds start_ = virtual_time::now();
  SimNetwork network_{{.nodes = 3}};
  std::array<VirtualFabric::NodeState, 3> states_{};
};

TEST_F(VirtualFabricTest, AMessageTakesOccupancyTransferAndLatency) {
  auto fabric = make(NodeId(0), {.latency_ns = 1000, .bytes_per_ns = 0.5, .occupancy_ns = 70});
  const std::vector<std::byte> payload(100);
  fabric.send(NodeId(1), {.type = kType}, payload, {}, SendContext::kOrdinary);
  // The outgoing link is still busy with the first message. A slice counts like a payload.
  fabric.send(NodeId(2), {.type = kType}, {}, {SegmentId::kFrames, 0, 50}, SendContext::kOrdinary);
  EXPECT_EQ(arrivals(), (std::vector<Nanoseconds>{70 + 200 + 1000, 270 + 70 + 100 + 1000}));
}

TEST_F(VirtualFabricTest, TwoSendersShareTheLinkIntoANode) {
  const NetworkModel model{.latency_ns = 1000, .bytes_per_ns = 1};
  auto first = make(NodeId(0), model);
  auto second = make(NodeId(1), model);
  const std::vector<std::byte> payload(300);
  first.send(NodeId(2), {.type = kType}, payload, {}, SendContext::kOrdinary);
  second.send(NodeId(2), {.type = kType}, payload, {}, SendContext::kOrdinary);
  EXPECT_EQ(arrivals(), (std::vector<Nanoseconds>{1300, 1600}));
}

TEST_F(VirtualFabricTest, RemoteOperationsMoveTheClock) {
  auto fabric = make(NodeId(0), {.latency_ns = 1000, .bytes_per_ns = 1, .occupancy_ns = 10});
  std::array<std::byte, 100> bytes{};
  Nanoseconds before = virtual_time::now();
  const auto took = [&] { return virtual_time::now() - std::exchange(before, virtual_time::now()); };
  fabric.get(NodeId(1), SegmentId::kFrames, 0, bytes);
  EXPECT_EQ(took(), 10 + 1000 + 10 + 100 + 1000u);
  fabric.put(NodeId(1), SegmentId::kFrames, 0, bytes);
  EXPECT_EQ(took(), 10 + 100 + 1000 + 1000u);
  fabric.fetch_add(NodeId(1), SegmentId::kWords, 0, 1);
  EXPECT_EQ(took(), 10 + 1000 + 10 + 8 + 1000u);
  // The node's own memory is not across the network.
  fabric.get(NodeId(0), SegmentId::kFrames, 0, bytes);
  EXPECT_EQ(took(), 0u);
  // Of two gets at once, the data of the second waits for that of the first.
  const Completion one = fabric.start_get(NodeId(1), SegmentId::kFrames, 0, bytes);
  const Completion two = fabric.start_get(NodeId(1), SegmentId::kFrames, 0, bytes);
  EXPECT_FALSE(fabric.is_complete(one));
  fabric.wait(two);
  EXPECT_TRUE(fabric.is_complete(one));
  EXPECT_EQ(took(), 2120 + 110u);
}

TEST_F(VirtualFabricTest, HandlersOfANodeTakeTurnsAndTheirMessagesCarryTheirClock) {
  const NetworkModel model{.latency_ns = 1000, .handler_ns = 5'000'000'000};
  auto sender = make(NodeId(0), model);
  auto home = make(NodeId(1), model);
  sender.set_handler(kReply, [](void*, const Message&) {}, nullptr);
  home.set_handler(
      kType,
      [](void* fabric, const Message& message) {
        static_cast<VirtualFabric*>(fabric)->send(message.from, {.type = kReply}, SendContext::kHandler);
      },
      &home);
  // This thread is interrupted.
  virtual_time::hand_over(0, virtual_time::now());
  sender.send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  sender.send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  ASSERT_TRUE(network_.deliver(NodeId(0), NodeId(1)));
  ASSERT_TRUE(network_.deliver(NodeId(0), NodeId(1)));
  const auto replies = arrivals();
  ASSERT_EQ(replies.size(), 2u);
  // The time is a latency there, an interrupt, and a latency back. Handlers also take the time that they take here,
  // which is far below a second.
  EXPECT_GE(replies[0], 5'000'002'000u);
  EXPECT_LT(replies[0], 6'000'000'000u);
  EXPECT_GE(replies[1], 10'000'002'000u);
}

// Messages are handled here in another order than they arrive in. The second handler begins before the first, and is not
// done when that one begins.
TEST_F(VirtualFabricTest, HandlersOfANodeNeverOverlap) {
  constexpr Nanoseconds kSecond = 1'000'000'000;
  auto early = make(NodeId(0), {.latency_ns = 1000});
  auto late = make(NodeId(2), {.latency_ns = 10 * kSecond});
  auto home = make(NodeId(1), {.latency_ns = 1000});
  // What a handler waits for, it works: that makes its time exact but for what it takes here.
  home.set_handler(
      kType,
      [](void* fabric, const Message& message) {
        const Nanoseconds length = message.header.word[0];
        virtual_time::advance(virtual_time::stamp() + length);
        static_cast<VirtualFabric*>(fabric)->send(message.from, {.type = kReply}, SendContext::kHandler);
      },
      &home);
  MessageHeader header{.type = kType};
  header.word[0] = 5 * kSecond;
  late.send(NodeId(1), header, SendContext::kOrdinary);
  header.word[0] = 20 * kSecond;
  early.send(NodeId(1), header, SendContext::kOrdinary);
  ASSERT_TRUE(network_.deliver(NodeId(2), NodeId(1)));
  ASSERT_TRUE(network_.deliver(NodeId(0), NodeId(1)));
  auto replies = arrivals();
  ASSERT_EQ(replies.size(), 2u);
  std::ranges::sort(replies);
  EXPECT_GE(replies[0], 15 * kSecond);
  EXPECT_LT(replies[0], 16 * kSecond);
  // 10 seconds of the other come before it, and 10 after.
  EXPECT_GE(replies[1], 25 * kSecond);
  EXPECT_LT(replies[1], 26 * kSecond);
}

TEST_F(VirtualFabricTest, WhatIsUnaccountedTakesNoTimeOfAnything) {
  const NetworkModel model{.latency_ns = 1000, .occupancy_ns = 70, .handler_ns = 5'000'000'000};
  auto sender = make(NodeId(0), model);
  auto home = make(NodeId(1), model);
  home.set_handler(
      kType,
      [](void* fabric, const Message& message) {
        EXPECT_EQ(message.arrival, 0u);
        static_cast<VirtualFabric*>(fabric)->send(message.from, {.type = kReply}, SendContext::kHandler);
      },
      &home);
  {
    const virtual_time::UnaccountedMessages measuring;
    sender.send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  }
  ASSERT_TRUE(network_.deliver(NodeId(0), NodeId(1)));
  ASSERT_EQ(network_.pending().size(), 1u);
  EXPECT_EQ(network_.pending().front()->not_before, 0u);
  {
    VirtualFabric::NodeState::Resource& handler = states_[1].handler;
    const LockGuard hold(handler.lock);
    EXPECT_EQ(handler.calendar.intervals(), 0u);
  }
  // The links are free for what is accounted.
  sender.send(NodeId(1), {.type = kReply}, SendContext::kOrdinary);
  std::vector<Nanoseconds> times;
  for (const auto* message : network_.pending()) times.push_back(message->not_before);
  EXPECT_EQ(times.size(), 2u);
  EXPECT_EQ(std::ranges::max(times), start_ + 1070);
  EXPECT_EQ(virtual_time::now(), start_);
}

}  // namespace
}  // namespace multigrain
