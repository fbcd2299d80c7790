// These tests call the engine of a guest's futexes, call by call. futex_explorer_test tries every order of messages.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "sync/futex/engine.h"

namespace multigrain {
namespace {

using Call = FutexCall;
using Answer = FutexAnswer;

struct Told {
  uint32_t caller;
  Answer answer;
  uint32_t result = 0;
  bool operator==(const Told&) const = default;
};
void PrintTo(const Told& told, std::ostream* out) {
  *out << "{" << told.caller << ", " << static_cast<int>(told.answer) << ", " << told.result << "}";
}

class Server {
 public:
  explicit Server(size_t slots, size_t buckets = 8)
      : entries_(slots + 1), buckets_(buckets), server_(entries_, buckets_) {}

  // Returns what the server tells because of this request.
  std::vector<Told> serve(uint32_t caller, FutexRequest request) {
    told_.clear();
    server_.serve(WaiterId(caller), request,
                  {[](void* self, WaiterId to, Answer answer, uint32_t result) {
                     static_cast<Server*>(self)->told_.push_back({to.value, answer, result});
                   },
                   this});
    return told_;
  }
  std::vector<Told> enqueue(uint32_t caller, uint64_t key, uint32_t bitset = ~uint32_t{0}) {
    return serve(caller, {.call = Call::kEnqueue, .bitset = bitset, .key = key});
  }
  std::vector<Told> confirm(uint32_t caller) { return serve(caller, {.call = Call::kConfirm}); }
  std::vector<Told> cancel(uint32_t caller) { return serve(caller, {.call = Call::kCancel}); }
  std::vector<Told> leave(uint32_t caller) { return serve(caller, {.call = Call::kLeave}); }
  std::vector<Told> wake(uint32_t caller, uint64_t key, uint32_t count, uint32_t bitset = ~uint32_t{0}) {
    return serve(caller, {.call = Call::kWake, .bitset = bitset, .key = key, .count = count});
  }
  void wait(uint32_t caller, uint64_t key, uint32_t bitset = ~uint32_t{0}) {
    EXPECT_EQ(enqueue(caller, key, bitset), (std::vector<Told>{{caller, Answer::kQueued}}));
    EXPECT_TRUE(confirm(caller).empty());
  }

 private:
  std::vector<FutexEntry> entries_;
  std::vector<FutexBucket> buckets_;
  FutexServer server_;
  std::vector<Told> told_;
};

using Tellings = std::vector<Told>;

TEST(FutexEngine, WakesTheOldestOfItsKey) {
  Server server(5);
  server.wait(1, 64);
  server.wait(2, 68);
  server.wait(3, 64);
  EXPECT_EQ(server.wake(4, 64, 1), (Tellings{{1, Answer::kWoken}, {4, Answer::kDone, 1}}));
  EXPECT_EQ(server.wake(4, 64, 9), (Tellings{{3, Answer::kWoken}, {4, Answer::kDone, 1}}));
  EXPECT_EQ(server.wake(4, 64, 9), (Tellings{{4, Answer::kDone, 0}}));
  EXPECT_EQ(server.wake(4, 68, 9), (Tellings{{2, Answer::kWoken}, {4, Answer::kDone, 1}}));
}

TEST(FutexEngine, WakesByBits) {
  Server server(4);
  server.wait(1, 64, 1);
  server.wait(2, 64, 6);
  EXPECT_EQ(server.wake(3, 64, 2, 4), (Tellings{{2, Answer::kWoken}, {3, Answer::kDone, 1}}));
  EXPECT_EQ(server.wake(3, 64, 2, 4), (Tellings{{3, Answer::kDone, 0}}));
}

TEST(FutexEngine, AWakeWaitsForTheTentativeThatItWouldTake) {
  Server server(5);
  server.wait(1, 64);
  server.enqueue(2, 64);
  // This wake ends at the first waiter.
  EXPECT_EQ(server.wake(3, 64, 1), (Tellings{{1, Answer::kWoken}, {3, Answer::kDone, 1}}));
  EXPECT_TRUE(server.wake(3, 64, 1).empty());
  // A later waiter comes into the queue after the wake.
  EXPECT_TRUE(server.enqueue(4, 64).empty());
  EXPECT_EQ(server.cancel(2), (Tellings{{3, Answer::kDone, 0}, {4, Answer::kQueued}}));
  EXPECT_TRUE(server.confirm(4).empty());
}

TEST(FutexEngine, WhatIsPendingEndsInOrder) {
  Server server(6);
  server.enqueue(1, 64);
  EXPECT_TRUE(server.wake(2, 64, 1).empty());
  EXPECT_TRUE(server.wake(3, 64, 1).empty());
  EXPECT_TRUE(server.enqueue(4, 64).empty());
  EXPECT_TRUE(server.wake(5, 64, 1).empty());
  EXPECT_EQ(server.confirm(1),
            (Tellings{{1, Answer::kWoken}, {2, Answer::kDone, 1}, {3, Answer::kDone, 0}, {4, Answer::kQueued}}));
  EXPECT_EQ(server.confirm(4), (Tellings{{4, Answer::kWoken}, {5, Answer::kDone, 1}}));
}

TEST(FutexEngine, LeavesOnlyIfNotWoken) {
  Server server(3);
  server.wait(1, 64);
  EXPECT_EQ(server.leave(1), (Tellings{{1, Answer::kLeft}}));
  server.wait(1, 64);
  server.wake(2, 64, 1);
  EXPECT_TRUE(server.leave(1).empty());
}

TEST(FutexEngine, RequeuesAndCounts) {
  for (const size_t buckets : {1, 8}) {
    Server server(6, buckets);
    for (uint32_t i = 1; i <= 4; ++i) server.wait(i, 64);
    EXPECT_EQ(server.serve(5, {.call = Call::kRequeue, .key = 64, .second_key = 68, .count = 1, .second_count = 2}),
              (Tellings{{1, Answer::kWoken}, {5, Answer::kDone, 3}}));
    EXPECT_EQ(server.leave(2), (Tellings{{2, Answer::kLeft}}));
    EXPECT_EQ(server.wake(5, 68, 9), (Tellings{{3, Answer::kWoken}, {5, Answer::kDone, 1}}));
    EXPECT_EQ(server.wake(5, 64, 9), (Tellings{{4, Answer::kWoken}, {5, Answer::kDone, 1}}));
  }
}

TEST(FutexEngine, NobodyQueuesAtKeysThatAreHeld) {
  Server server(6);
  server.wait(1, 64);
  EXPECT_EQ(server.serve(2, {.call = Call::kHold, .key = 64, .second_key = 68, .count = 1, .second_count = 1}),
            (Tellings{{2, Answer::kHeld}}));
  EXPECT_TRUE(server.enqueue(3, 68).empty());
  EXPECT_TRUE(server.wake(4, 64, 1).empty());
  EXPECT_EQ(server.leave(1), (Tellings{{1, Answer::kLeft}}));
  EXPECT_EQ(server.serve(2, {.call = Call::kHeldWake, .count = 1, .second_count = 1}),
            (Tellings{{2, Answer::kDone, 0}, {3, Answer::kQueued}, {4, Answer::kDone, 0}}));
  server.cancel(3);
  EXPECT_EQ(server.serve(2, {.call = Call::kHold, .key = 68, .second_key = 64}), (Tellings{{2, Answer::kHeld}}));
  EXPECT_TRUE(server.serve(2, {.call = Call::kHeldNothing}).empty());
}

TEST(FutexEngine, AHoldWaitsForTentativeWaitersOfBothKeys) {
  Server server(4);
  server.enqueue(1, 64);
  server.enqueue(2, 68);
  EXPECT_TRUE(server.serve(3, {.call = Call::kHold, .key = 64, .second_key = 68}).empty());
  EXPECT_TRUE(server.confirm(1).empty());
  EXPECT_EQ(server.cancel(2), (Tellings{{3, Answer::kHeld}}));
}

TEST(FutexEngine, AThousandWaitersOfManyKeys) {
  constexpr uint32_t kWaiters = 1000;
  constexpr uint64_t kKeys = 300;
  Server server(kWaiters + 1, 64);
  std::mt19937 random(1);
  std::vector<std::vector<uint32_t>> waiting(kKeys);
  for (uint32_t i = 1; i <= kWaiters; ++i) {
    const uint64_t key = random() % kKeys;
    server.wait(i, 4096 + 4 * key);
    waiting[key].push_back(i);
  }
  for (uint64_t key = 0; key < kKeys; ++key) {
    Tellings expected;
    for (const uint32_t i : waiting[key]) expected.push_back({i, Answer::kWoken});
    expected.push_back({kWaiters + 1, Answer::kDone, static_cast<uint32_t>(waiting[key].size())});
    EXPECT_EQ(server.wake(kWaiters + 1, 4096 + 4 * key, kWaiters), expected);
  }
}

TEST(FutexEngineDeath, StopsAtWhatTheProtocolCannotHaveSent) {
  Server server(3);
  EXPECT_DEATH(server.confirm(1), "invariant broken");
  server.wait(1, 64);
  EXPECT_DEATH(server.cancel(1), "invariant broken");
  EXPECT_DEATH(server.enqueue(1, 64), "invariant broken");
  EXPECT_DEATH(server.serve(2, {.call = Call::kHeldWake}), "invariant broken");
  server.enqueue(2, 64);
  EXPECT_DEATH(server.leave(2), "invariant broken");
}

}  // namespace
}  // namespace multigrain
