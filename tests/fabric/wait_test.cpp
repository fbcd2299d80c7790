// These test PollingScope and wait_until over a fabric that only counts the threads that poll. (tests/base has
// EventCount itself.)
#include "fabric/wait.h"

#include <gtest/gtest.h>

#include <thread>

namespace multigrain {
namespace {

class CountingFabric final : public Fabric {
 public:
  [[nodiscard]] int pollers() const { return pollers_.load(); }

  [[nodiscard]] NodeId self() const override { return NodeId(0); }
  [[nodiscard]] unsigned nodes() const override { return 1; }
  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override {}
  void get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override {}
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { return {}; }
  Completion start_get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { return {}; }
  bool is_complete(Completion) override { return true; }
  void wait(Completion) override {}
  uint64_t fetch_and_set(NodeId, SegmentId, uint64_t, uint64_t) override { return 0; }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { return 0; }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override { return 0; }
  void set_handler(MessageType, MessageHandler, void*) override {}
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {}
  unsigned poll() override {
    EXPECT_GE(pollers_.load(), 1) << "a thread that polls in a wait is counted";
    return 0;
  }
  void begin_polling() override { ++pollers_; }
  void end_polling() override { EXPECT_GE(--pollers_, 0) << "ended without having begun"; }
  void serve() override {}
  void wake_service() override {}

 private:
  std::atomic<int> pollers_{0};
};

// Each wait ends asleep, so that the next one has to begin polling again.
TEST(PollingScopeTest, SurvivesSeveralWaitsThatBlock) {
  CountingFabric fabric;
  EventCount event;
  std::atomic<int> value{0};
  {
    PollingScope polling(fabric);
    for (int i = 1; i <= 5; ++i) {
      std::thread setter([&] {
        while (fabric.pollers() != 0) std::this_thread::yield();  // the waiter has blocked
        value = i;
        event.notify();
      });
      wait_until(polling, WaitPolicy{0}, event, [&] { return value.load() >= i; });
      setter.join();
      EXPECT_LE(fabric.pollers(), 1);
    }
  }
  EXPECT_EQ(fabric.pollers(), 0);
}

TEST(PollingScopeTest, IsKeptByAWaitThatNeedNotWait) {
  CountingFabric fabric;
  EventCount event;
  PollingScope polling(fabric);
  wait_until(polling, WaitPolicy{0}, event, [] { return true; });
  EXPECT_EQ(fabric.pollers(), 1);
}

}  // namespace
}  // namespace multigrain
