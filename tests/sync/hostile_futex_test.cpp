// These test the futexes of a guest among nodes that send anything.
#include "../fabric/hostile.h"
#include "sync/futex/futexes.h"
#include "sync/futex/messages.h"

namespace multigrain::testing {
namespace {

constexpr unsigned kNodes = 3;

// Makes a request that might be right. It has few slots and keys, so that calls meet.
MessageHeader plausible(std::mt19937_64& random) {
  MessageHeader header;
  header.type = futex_message::kCall;
  header.flags = static_cast<uint8_t>(random() % static_cast<unsigned>(FutexCall::kCount));
  header.small = static_cast<uint16_t>(random() % 4);
  header.extra = static_cast<uint32_t>(random() % 4);
  header.word = {4 * (random() % 3), 4 * (random() % 3), random() % 3 | (random() % 3) << 32};
  return header;
}

TEST(HostileFutex, TheServerAcceptsOrEndsWithASentence) {
  const HostileCounts counts = run_trials(400, [](std::mt19937_64& random) {
    HostileFabric fabric(NodeId(0), kNodes);
    const Futexes futexes(fabric, WaitPolicy{0}, NodeId(0));
    for (int i = 0; i < 60; ++i) {
      MessageHeader header = plausible(random);
      if (random() % 8 == 0) damage(header, random);
      fabric.deliver(NodeId(static_cast<uint16_t>(1 + random() % (kNodes - 1))), header);
    }
  });
  EXPECT_GT(counts.ended, 200u);
}

// Calls that begin something, each of a slot of its own, are right in any number.
TEST(HostileFutex, TheServerAcceptsWhatBegins) {
  const HostileCounts counts = run_trials(50, [](std::mt19937_64& random) {
    HostileFabric fabric(NodeId(0), kNodes);
    const Futexes futexes(fabric, WaitPolicy{0}, NodeId(0));
    for (uint16_t i = 0; i < 1000; ++i) {
      MessageHeader header = plausible(random);
      header.flags = std::array<uint8_t, 4>{
          static_cast<uint8_t>(FutexCall::kEnqueue), static_cast<uint8_t>(FutexCall::kWake),
          static_cast<uint8_t>(FutexCall::kRequeue), static_cast<uint8_t>(FutexCall::kHold)}[random() % 4];
      header.small = i;
      fabric.deliver(NodeId(1), header);
    }
  });
  EXPECT_EQ(counts.ended, 0u);
}

TEST(HostileFutex, AnswersThatNobodyAwaits) {
  const HostileCounts counts = run_trials(100, [](std::mt19937_64& random) {
    HostileFabric fabric(NodeId(1), kNodes);
    const Futexes futexes(fabric, WaitPolicy{0}, NodeId(0));
    for (int i = 0; i < 20; ++i) {
      MessageHeader header = plausible(random);
      header.type = futex_message::kAnswer;
      if (random() % 4 == 0) damage(header, random);
      fabric.deliver(NodeId(static_cast<uint16_t>(2 * (random() % 2))), header);
    }
  });
  EXPECT_GT(counts.ended, 90u);
}

}  // namespace
}  // namespace multigrain::testing
