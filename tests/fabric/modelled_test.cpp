// These tests check the model's arithmetic on the simulated fabric, which shows the time that each message was stamped
// with. Nothing here depends on how fast the machine is: a wait has a least duration, and no greatest.
#include "fabric/emulation/modelled.h"

#include <gtest/gtest.h>

#include <thread>

#include "shm_job.h"
#include "support/sim_fabric.h"

namespace multigrain {
namespace {

constexpr MessageType kType = message_range::kTest;

class ModelledTest : public ::testing::Test {
 protected:
  ModelledFabric make(const NetworkModel& model) {
    return ModelledFabric(std::make_unique<ForwardingFabric>(network_.node(NodeId(0))), model);
  }
  std::vector<Nanoseconds> stamps() {
    std::vector<Nanoseconds> times;
    for (const auto* message : network_.pending()) times.push_back(message->not_before);
    return times;
  }
  SimNetwork network_{{.nodes = 3}};
};

TEST_F(ModelledTest, MessagesQueueForTheLink) {
  // The network is so slow that the sends below all fall into the first transfer.
  auto fabric = make({.latency_ns = 1'000'000'000'000, .bytes_per_ns = 1e-9, .occupancy_ns = 7'000'000'000'000});
  const std::vector<std::byte> payload(2000);
  const Nanoseconds before = monotonic_ns();
  fabric.send(NodeId(1), {.type = kType}, payload, {}, SendContext::kOrdinary);
  const Nanoseconds after = monotonic_ns();
  fabric.send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  fabric.send(NodeId(2), {.type = kType}, {}, {SegmentId::kFrames, 0, 3000}, SendContext::kOrdinary);
  const auto times = stamps();
  ASSERT_EQ(times.size(), 3u);
  constexpr Nanoseconds kFirst = 1'000'000'000'000 + 7'000'000'000'000 + 2000ull * 1'000'000'000;
  EXPECT_GE(times[0], before + kFirst);
  EXPECT_LE(times[0], after + kFirst);
  EXPECT_EQ(times[1], times[0] + 7'000'000'000'000);
  // This goes to another destination over the same link; the slice counts.
  EXPECT_EQ(times[2], times[1] + 7'000'000'000'000 + 3000ull * 1'000'000'000);
  const auto counters = fabric.counters();
  EXPECT_EQ(counters.messages, 3u);
  EXPECT_EQ(counters.message_bytes, 5000u);
  EXPECT_GE(counters.message_delay, kFirst);
  EXPECT_EQ(counters.operations, 0u);
}

TEST_F(ModelledTest, ALaterTimeOfTheCallersIsKept) {
  auto fabric = make({.latency_ns = 1000});
  const Nanoseconds late = monotonic_ns() + 1'000'000'000'000;
  fabric.send(NodeId(1), {.type = kType}, {}, {}, SendContext::kOrdinary, late);
  EXPECT_EQ(stamps(), std::vector<Nanoseconds>{late});
}

TEST_F(ModelledTest, OperationsTakeTwoLatencies) {
  auto fabric = make({.latency_ns = 100'000, .occupancy_ns = 5000});
  std::byte byte{};
  const auto takes = [](auto&& operation) {
    const Nanoseconds start = monotonic_ns();
    operation();
    return monotonic_ns() - start;
  };
  EXPECT_GE(takes([&] { fabric.put(NodeId(1), SegmentId::kFrames, 0, {&byte, 1}); }), 205'000u);
  EXPECT_GE(takes([&] { fabric.get(NodeId(1), SegmentId::kFrames, 0, {&byte, 1}); }), 205'000u);
  EXPECT_GE(takes([&] { fabric.fetch_add(NodeId(1), SegmentId::kWords, 0, 1); }), 205'000u);
  EXPECT_GE(takes([&] { fabric.fetch_and_set(NodeId(1), SegmentId::kWords, 0, 1); }), 205'000u);
  EXPECT_GE(takes([&] { fabric.compare_and_swap(NodeId(1), SegmentId::kWords, 0, 1, 2); }), 205'000u);
  EXPECT_EQ(fabric.counters().operations, 5u);
  EXPECT_EQ(fabric.counters().operation_bytes, 26u);
  EXPECT_GE(fabric.counters().waited, 5 * 200'000u - 5 * 20'000u);
  // The node's own memory is not across the network.
  fabric.get(NodeId(0), SegmentId::kFrames, 0, {&byte, 1});
  EXPECT_EQ(fabric.counters().operations, 5u);
}

TEST_F(ModelledTest, StartedOperationsOverlap) {
  auto fabric = make({.latency_ns = 1'000'000'000'000});
  std::array<std::byte, 64> bytes{};
  const Completion first = fabric.start_get(NodeId(1), SegmentId::kFrames, 0, bytes);
  const Completion second = fabric.start_put(NodeId(2), SegmentId::kFrames, 0, bytes);
  EXPECT_LT(second.id - first.id, 1'000'000'000'000u) << "the second was charged after the first's completion";
  EXPECT_FALSE(fabric.is_complete(first));
  EXPECT_FALSE(fabric.is_complete(second));
}

TEST_F(ModelledTest, WaitingForAStartedOperationLastsUntilItIsComplete) {
  auto fabric = make({.latency_ns = 1'000'000});
  std::array<std::byte, 64> bytes{};
  const Completion get = fabric.start_get(NodeId(1), SegmentId::kFrames, 0, bytes);
  fabric.wait(get);
  EXPECT_GE(monotonic_ns(), get.id);
  EXPECT_TRUE(fabric.is_complete(get));
}

TEST(ModelledShm, ASleepingNodeHandlesAMessageWhenItIsDueAndNotBefore) {
  const testing::ShmJob job(2);
  ModelledFabric sender(job.attach(0), {.latency_ns = 3'000'000});
  const auto receiver = job.attach(1);
  std::atomic<Nanoseconds> handled{0};
  receiver->set_handler(
      kType, [](void* at, const Message&) { static_cast<std::atomic<Nanoseconds>*>(at)->store(monotonic_ns()); },
      &handled);
  std::thread service([&] {
    while (handled.load() == 0) receiver->serve();
  });
  const Nanoseconds start = monotonic_ns();
  sender.send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
  service.join();
  EXPECT_GE(handled.load(), start + 3'000'000);
}

}  // namespace
}  // namespace multigrain
