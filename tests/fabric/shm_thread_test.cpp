// These test rings and doorbells with every node in one process, so that the thread sanitizer sees both ends.
//
// A wake-up that is lost shows as a test that stops: the watchdog ends it with the name of the test.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "fabric/shm/shm_fabric.h"
#include "fabric/wait.h"
#include "shm_job.h"

namespace multigrain {
namespace {

using testing::ShmJob;

constexpr MessageType kPing = message_range::kTest;
constexpr MessageType kPong = message_range::kTest + 1;

class Watchdog {
 public:
  Watchdog()
      : thread_([this] {
          std::unique_lock guard(mutex_);
          if (!ended_.wait_for(guard, std::chrono::seconds(600), [this] { return over_; })) {
            fprintf(stderr, "the test hangs\n");
            abort();
          }
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard guard(mutex_);
      over_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

// This is a node's service thread.
class Service {
 public:
  explicit Service(ShmFabric& fabric)
      : fabric_(fabric), thread_([this] {
          while (!stop_.load()) fabric_.serve();
        }) {}
  ~Service() {
    stop_.store(true);
    fabric_.wake_service();
    thread_.join();
  }

 private:
  ShmFabric& fabric_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class ShmThreads : public ::testing::Test {
  Watchdog watchdog_;
};

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr unsigned kSlower = 10;
#else
constexpr unsigned kSlower = 1;
#endif
#elif defined(__SANITIZE_THREAD__)
constexpr unsigned kSlower = 10;
#else
constexpr unsigned kSlower = 1;
#endif

// Checks, from one source, that every thread's messages come in order and whole, and that handlers never overlap.
struct OrderCheck {
  static constexpr unsigned kThreads = 4;
  std::array<uint64_t, kThreads> next{};  // not atomic, so that the sanitizer checks that handlers are ordered
  std::atomic<int> inside{0};
  std::atomic<uint64_t> handled{0};
  std::atomic<uint64_t> wrong{0};

  static void handler(void* context, const Message& message) {
    auto& self = *static_cast<OrderCheck*>(context);
    if (self.inside.fetch_add(1) != 0) ++self.wrong;
    const uint64_t thread = message.header.word[0];
    if (message.header.word[1] != self.next[thread]++) ++self.wrong;
    if (message.payload.size() != message.header.extra) ++self.wrong;
    for (std::byte b : message.payload) {
      if (b != static_cast<std::byte>(message.header.word[1] + 1)) {
        ++self.wrong;
        break;
      }
    }
    self.inside.fetch_sub(1);
    self.handled.fetch_add(1);
  }

  static void send(Fabric& fabric, NodeId to, unsigned thread, uint64_t number, size_t length, SendContext context) {
    std::vector<std::byte> payload(length, static_cast<std::byte>(number + 1));
    fabric.send(to, {.type = kPing, .extra = static_cast<uint32_t>(length), .word = {thread, number}}, payload, {},
                context);
  }
};

TEST_F(ShmThreads, ManySendersAndManyPollersKeepEveryPairInOrder) {
  constexpr uint64_t kMessages = 20'000 / kSlower;
  const ShmJob job(3);
  const auto a = job.attach(0);
  const auto b = job.attach(1);
  const auto receiver = job.attach(2);
  OrderCheck check_a;
  OrderCheck check_b;
  struct Both {
    OrderCheck* of[2];
  } both{{&check_a, &check_b}};
  receiver->set_handler(
      kPing,
      [](void* context, const Message& message) {
        OrderCheck::handler(static_cast<Both*>(context)->of[message.from.value], message);
      },
      &both);
  const uint64_t total = kMessages * OrderCheck::kThreads;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < OrderCheck::kThreads; ++t) {
    for (ShmFabric* sender : {a.get(), b.get()}) {
      threads.emplace_back([=] {
        std::mt19937 random(t);
        for (uint64_t i = 0; i < kMessages; ++i) {
          const size_t length = random() % 50 == 0 ? random() % 20'000 : random() % 200;
          OrderCheck::send(*sender, NodeId(2), t, i, length, SendContext::kOrdinary);
        }
      });
    }
  }
  const Service service(*receiver);
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      receiver->begin_polling();
      while (check_a.handled.load() < total || check_b.handled.load() < total) {
        if (receiver->poll() == 0) std::this_thread::yield();
      }
      receiver->end_polling();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(check_a.handled.load(), total);
  EXPECT_EQ(check_b.handled.load(), total);
  EXPECT_EQ(check_a.wrong.load() + check_b.wrong.load(), 0u);
}

TEST_F(ShmThreads, TwoNodesThatFloodEachOtherWithoutServiceThreadsBothFinish) {
  constexpr uint64_t kMessages = 10'000 / kSlower;
  const ShmJob job(2);
  std::array<std::unique_ptr<ShmFabric>, 2> nodes{job.attach(0), job.attach(1)};
  std::array<OrderCheck, 2> checks;
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < 2; ++n) nodes[n]->set_handler(kPing, &OrderCheck::handler, &checks[n]);
  for (unsigned n = 0; n < 2; ++n) {
    threads.emplace_back([&, n] {
      const NodeId peer(static_cast<uint16_t>(1 - n));
      for (uint64_t i = 0; i < kMessages; ++i) OrderCheck::send(*nodes[n], peer, 0, i, 2000, SendContext::kOrdinary);
      nodes[n]->begin_polling();
      while (checks[n].handled.load() < kMessages) nodes[n]->poll();
      nodes[n]->end_polling();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (unsigned n = 0; n < 2; ++n) {
    EXPECT_EQ(checks[n].handled.load(), kMessages);
    EXPECT_EQ(checks[n].wrong.load(), 0u);
  }
}

TEST_F(ShmThreads, WhatOverflowsGoesOutInOrderByTheServiceThreadAlone) {
  constexpr uint64_t kMessages = 3'000;
  const ShmJob job(2);
  const auto sender = job.attach(0);
  const auto receiver = job.attach(1);
  OrderCheck check;
  receiver->set_handler(kPing, &OrderCheck::handler, &check);
  const Service sender_service(*sender);
  // No thread receives yet: 3 MB go into a ring of 256 KiB.
  for (uint64_t i = 0; i < kMessages; ++i)
    OrderCheck::send(*sender, NodeId(1), 0, i, i % 1000 == 0 ? Fabric::kMaxPayload : 1000, SendContext::kHandler);
  const Service receiver_service(*receiver);
  while (check.handled.load() < kMessages) std::this_thread::yield();
  // Messages that are sent afterwards, in both ways, come after them.
  OrderCheck::send(*sender, NodeId(1), 0, kMessages, 10, SendContext::kHandler);
  OrderCheck::send(*sender, NodeId(1), 0, kMessages + 1, 10, SendContext::kOrdinary);
  while (check.handled.load() < kMessages + 2) std::this_thread::yield();
  EXPECT_EQ(check.wrong.load(), 0u);
}

TEST_F(ShmThreads, HandlersThatFloodEachOtherLoseNothing) {
  // A message of depth d is answered by two of depth d-1, and so on. Handlers alone send 2^(d+1) - 1 messages in all.
  constexpr uint64_t kDepth = kSlower == 1 ? 14 : 10;
  const ShmJob job(2);
  struct Node {
    std::unique_ptr<ShmFabric> fabric;
    std::atomic<uint64_t>* handled;
    uint64_t sent = 0;
    uint64_t expected = 0;
    std::atomic<uint64_t> wrong{0};
  };
  std::atomic<uint64_t> handled{0};
  std::array<Node, 2> nodes;
  for (unsigned n = 0; n < 2; ++n) {
    nodes[n].fabric = job.attach(n);
    nodes[n].handled = &handled;
    nodes[n].fabric->set_handler(
        kPing,
        [](void* context, const Message& message) {
          auto& node = *static_cast<Node*>(context);
          if (message.header.word[1] != node.expected++) ++node.wrong;
          if (message.header.word[0] != 0) {
            for (int i = 0; i < 2; ++i) {
              const std::array<std::byte, 1000> payload{};
              node.fabric->send(message.from, {.type = kPing, .word = {message.header.word[0] - 1, node.sent++}},
                                payload, {}, SendContext::kHandler);
            }
          }
          node.handled->fetch_add(1);
        },
        &nodes[n]);
  }
  const Service first(*nodes[0].fabric);
  nodes[0].fabric->send(NodeId(1), {.type = kPing, .word = {kDepth, nodes[0].sent++}}, SendContext::kOrdinary);
  const Service second(*nodes[1].fabric);
  while (handled.load() < (uint64_t{2} << kDepth) - 1) std::this_thread::yield();
  EXPECT_EQ(handled.load(), (uint64_t{2} << kDepth) - 1);
  EXPECT_EQ(nodes[0].wrong.load() + nodes[1].wrong.load(), 0u);
}

void answer_pings(ShmFabric& fabric) {
  fabric.set_handler(
      kPing,
      [](void* context, const Message& message) {
        MessageHeader answer = message.header;
        answer.type = kPong;
        static_cast<ShmFabric*>(context)->send(message.from, answer, SendContext::kHandler);
      },
      &fabric);
}

// A node that sends pings to another one, which answers them.
struct Pinger {
  void attach(const ShmJob& job, unsigned node) {
    fabric = job.attach(node);
    fabric->set_handler(
        kPong,
        [](void* context, const Message& message) {
          auto& self = *static_cast<Pinger*>(context);
          self.answered.store(message.header.word[0]);
          self.event.notify();
        },
        this);
  }
  void ping(NodeId to, uint64_t round) { fabric->send(to, {.type = kPing, .word = {round}}, SendContext::kOrdinary); }
  // Waits for the answer as the runtime does, and spins for a random time before it sleeps.
  void await(uint64_t round, std::mt19937& random) {
    const WaitPolicy policy{random() % 3 == 0 ? 0 : random() % 100'000};
    wait_until(*fabric, policy, event, [&] { return answered.load() == round; });
  }

  std::unique_ptr<ShmFabric> fabric;
  std::atomic<uint64_t> answered{0};
  EventCount event;
};

// This is the test of doorbell.h. Pingers wait for each answer the way the runtime does, spinning for a random time
// before they sleep; on the answering node threads come and go at random. A message that no thread sees stops the test.
// Two nodes, of so many, ping a third one.
void ping_without_a_loss(unsigned nodes, const std::array<unsigned, 2>& pingers_at, unsigned answers_at) {
  constexpr unsigned kPingers = 2;
  constexpr uint64_t kRounds = 50'000 / kSlower;
  const ShmJob job(nodes);
  const auto answerer = job.attach(answers_at);
  answer_pings(*answerer);
  std::atomic<bool> over{false};
  const Service answers(*answerer);
  std::vector<std::thread> pollers;
  for (unsigned t = 0; t < 2; ++t) {
    pollers.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!over.load()) {
        // A thread that polls without being counted hides messages too, while it holds a source's token.
        for (auto i = random() % 3; i != 0; --i) answerer->poll();
        answerer->begin_polling();
        for (unsigned i = random() % 4; i != 0; --i) answerer->poll();
        if (random() % 8 == 0) std::this_thread::yield();
        answerer->end_polling();
        if (random() % 4 != 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
      }
    });
  }
  std::array<Pinger, kPingers> pingers;
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < kPingers; ++p) {
    pingers[p].attach(job, pingers_at[p]);
    threads.emplace_back([&pinger = pingers[p], p, answers_at] {
      const Service service(*pinger.fabric);
      std::mt19937 random(100 + p);
      for (uint64_t round = 1; round <= kRounds; ++round) {
        pinger.ping(NodeId(static_cast<uint16_t>(answers_at)), round);
        pinger.await(round, random);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over.store(true);
  for (std::thread& thread : pollers) thread.join();
  for (const Pinger& pinger : pingers) EXPECT_EQ(pinger.answered.load(), kRounds);
}

TEST_F(ShmThreads, NoSleeperMissesAMessage) {
  ping_without_a_loss(3, {0, 1}, 2);
}

// The two bits of a source on a large machine are not set and cleared at once (source_groups.h). Pingers of one group, and
// of two.
TEST_F(ShmThreads, NoSleeperMissesAMessageOfAGroup) {
  ping_without_a_loss(140, {128, 139}, 5);
  ping_without_a_loss(140, {3, 130}, 129);
}

// This does the same with processors that compute: senders leave messages to them, and they look for messages, do not
// look for a while, sleep in waits, and begin and end at random.
TEST_F(ShmThreads, NoMessageIsForgottenThatIsLeftToProcessors) {
  constexpr unsigned kPingers = 2;
  constexpr uint64_t kRounds = 20'000 / kSlower;
  const ShmJob job(kPingers + 1);
  const auto answerer = job.attach(kPingers);
  answer_pings(*answerer);
  std::atomic<bool> over{false};
  const Service answers(*answerer);
  std::vector<std::thread> processors;
  processors.reserve(2);
  for (unsigned t = 0; t < 2; ++t) {
    processors.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!over.load()) {
        Computing::begin(*answerer);
        for (auto i = random() % 2000; i != 0; --i)
          if (answerer->pending_messages()->load(std::memory_order_relaxed) != 0) answerer->poll();
        if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
        if (random() % 4 == 0) {
          PollingScope polling(*answerer);
          polling.pause();
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 60));
          if (random() % 2 == 0) polling.resume();
        }
        Computing::end(*answerer);
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
    });
  }
  std::array<Pinger, kPingers> pingers;
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < kPingers; ++p) {
    pingers[p].attach(job, p);
    threads.emplace_back([&pinger = pingers[p], p] {
      const Service service(*pinger.fabric);
      std::mt19937 random(100 + p);
      Computing::begin(*pinger.fabric);
      for (uint64_t round = 1; round <= kRounds; ++round) {
        pinger.ping(NodeId(kPingers), round);
        if (random() % 8 == 0) {
          // The answer comes while the thread computes, and is seen by a poll, or by the service thread.
          while (pinger.answered.load() != round)
            if (random() % 2 == 0) pinger.fabric->poll();
          continue;
        }
        pinger.await(round, random);
      }
      Computing::end(*pinger.fabric);
    });
  }
  for (std::thread& thread : threads) thread.join();
  over.store(true);
  for (std::thread& thread : processors) thread.join();
  for (const Pinger& pinger : pingers) EXPECT_EQ(pinger.answered.load(), kRounds);
}

// A processor that says that it computes, and never polls, keeps no message for ever.
TEST_F(ShmThreads, MessagesToAProcessorThatNeverPollsAreServed) {
  const ShmJob job(2);
  const auto receiver = job.attach(1);
  std::atomic<uint64_t> last{0};
  receiver->set_handler(
      kPing,
      [](void* context, const Message& message) {
        static_cast<std::atomic<uint64_t>*>(context)->store(message.header.word[0]);
      },
      &last);
  const Service service(*receiver);
  receiver->begin_computing();
  const auto sender = job.attach(0);
  for (uint64_t round = 1; round <= 200; ++round) {
    sender->send(NodeId(1), {.type = kPing, .word = {round}}, SendContext::kOrdinary);
    while (last.load() != round) std::this_thread::yield();
  }
  receiver->end_computing();
}

// This does the same with messages that are not due when they arrive: a thread that leaves must leave a timer behind.
TEST_F(ShmThreads, NoSleeperMissesAMessageThatIsNotYetDue) {
  constexpr uint64_t kRounds = 2'000 / kSlower;
  const ShmJob job(2);
  const auto sender = job.attach(0);
  const auto receiver = job.attach(1);
  struct Context {
    std::atomic<uint64_t> handled{0};
    std::atomic<uint64_t> early{0};
    EventCount event;
  } context;
  receiver->set_handler(
      kPing,
      [](void* c, const Message& message) {
        auto& self = *static_cast<Context*>(c);
        if (monotonic_ns() < message.header.word[0]) ++self.early;
        self.handled.fetch_add(1);
        self.event.notify();
      },
      &context);
  const Service service(*receiver);
  std::mt19937 random(5);
  for (uint64_t round = 1; round <= kRounds; ++round) {
    const Nanoseconds due = monotonic_ns() + random() % 300'000;
    sender->send(NodeId(1), {.type = kPing, .word = {due}}, {}, {}, SendContext::kOrdinary, due);
    wait_until(*receiver, WaitPolicy{random() % 200'000}, context.event,
               [&] { return context.handled.load() == round; });
  }
  EXPECT_EQ(context.early.load(), 0u);
}

TEST_F(ShmThreads, AMessageThatIsNotDueHoldsBackThoseBehindIt) {
  const ShmJob job(3);
  const auto early = job.attach(0);
  const auto receiver = job.attach(1);
  const auto other = job.attach(2);
  std::vector<uint64_t> order;
  receiver->set_handler(
      kPing,
      [](void* c, const Message& message) {
        static_cast<std::vector<uint64_t>*>(c)->push_back(message.header.word[0]);
      },
      &order);
  const Nanoseconds due = monotonic_ns() + 20'000'000;
  early->send(NodeId(1), {.type = kPing, .word = {1}}, {}, {}, SendContext::kOrdinary, due);
  early->send(NodeId(1), {.type = kPing, .word = {2}}, SendContext::kOrdinary);
  other->send(NodeId(1), {.type = kPing, .word = {3}}, SendContext::kOrdinary);
  receiver->begin_polling();
  while (order.size() < 3) {
    const size_t before = order.size();
    receiver->poll();
    if (order.size() > before && order.back() != 3) {
      EXPECT_GE(monotonic_ns(), due);
    }
  }
  receiver->end_polling();
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 1, 2}));
}

TEST_F(ShmThreads, RemoteAtomicsOfManyThreadsAddUp) {
  // All threads at once touch words in eight different windows for the first time.
  constexpr uint64_t kRegion = uint64_t{8} << 30;
  constexpr uint64_t kRounds = 4'000 / kSlower;
  const ShmJob job(2, kRegion);
  const auto a = job.attach(0);
  const auto b = job.attach(1);
  std::vector<std::thread> threads;
  for (ShmFabric* fabric : {a.get(), b.get(), a.get(), b.get()}) {
    threads.emplace_back([=] {
      for (uint64_t i = 0; i < kRounds; ++i) {
        const NodeId at(static_cast<uint16_t>(i % 2));
        const uint64_t offset = (i % 8 << 30) + 4088;
        fabric->fetch_add(at, SegmentId::kFrames, offset, 1);
        uint64_t old = fabric->fetch_add(at, SegmentId::kWords, 0, 0);
        while (true) {
          const uint64_t seen = fabric->compare_and_swap(at, SegmentId::kWords, 0, old, old + 1);
          if (seen == old) break;
          old = seen;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t frames = 0;
  for (unsigned i = 0; i < 8; ++i)
    frames += a->fetch_add(NodeId(static_cast<uint16_t>(i % 2)), SegmentId::kFrames, (uint64_t{i} << 30) + 4088, 0);
  EXPECT_EQ(frames, 4 * kRounds);
  EXPECT_EQ(a->fetch_add(NodeId(0), SegmentId::kWords, 0, 0) + a->fetch_add(NodeId(1), SegmentId::kWords, 0, 0),
            4 * kRounds);
}

TEST_F(ShmThreads, AnExportedBaseServesTheNodesOwnAccesses) {
  constexpr size_t kSize = 1 << 16;
  const ShmJob job(2, kSize);
  const auto a = job.attach(0);
  const auto b = job.attach(1);
  void* alias = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, job.frames()[0], 0);
  ASSERT_NE(alias, MAP_FAILED);
  a->export_segment(SegmentId::kFrames, static_cast<std::byte*>(alias), kSize);
  a->fetch_add(NodeId(0), SegmentId::kFrames, 800, 11);
  EXPECT_EQ(static_cast<uint64_t*>(alias)[100], 11u);
  EXPECT_EQ(b->fetch_add(NodeId(0), SegmentId::kFrames, 800, 0), 11u);
  munmap(alias, kSize);
}

TEST_F(ShmThreads, AccessesMayCrossWindows) {
  constexpr uint64_t kRegion = uint64_t{2} << 30;
  const ShmJob job(2, kRegion);
  const auto a = job.attach(0);
  const auto b = job.attach(1);
  std::vector<std::byte> data(10'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  std::vector<std::byte> back(data.size());
  a->put(NodeId(1), SegmentId::kFrames, (uint64_t{1} << 30) - 5000, data);
  b->get(NodeId(1), SegmentId::kFrames, (uint64_t{1} << 30) - 5000, back);
  EXPECT_EQ(back, data);
}

TEST_F(ShmThreads, WhatIsUnmappedOfPeersIsMappedAgain) {
  const ShmJob job(2, uint64_t{2} << 30);
  const auto a = job.attach(0);
  const auto b = job.attach(1);
  std::vector<std::byte> data(10'000, std::byte{3}), back(10'000);
  const uint64_t border = (uint64_t{1} << 30) - 5000;
  a->put(NodeId(1), SegmentId::kFrames, border, data);
  a->unmap_pages_of_peers();
  a->get(NodeId(1), SegmentId::kFrames, border, back);
  EXPECT_EQ(back, data);
  std::ranges::fill(data, std::byte{4});
  a->put(NodeId(1), SegmentId::kFrames, border, data);
  b->get(NodeId(1), SegmentId::kFrames, border, back);
  EXPECT_EQ(back, data);
}

TEST_F(ShmThreads, AServiceThreadThatSleepsReturnsWhenWoken) {
  const ShmJob job(2);
  const auto fabric = job.attach(0);
  for (int i = 0; i < 200; ++i) {
    std::thread service([&] { fabric->serve(); });
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    fabric->wake_service();
    service.join();
  }
}

TEST(ShmThreadsDeath, LeavingWithoutHavingComeIsABug) {
  const ShmJob job(1);
  const auto fabric = job.attach(0);
  EXPECT_DEATH(fabric->end_polling(), "invariant broken");
}

}  // namespace
}  // namespace multigrain
