// These test nodes as they are in a run: forked processes that share nothing but the descriptors.
//
// Every child kills itself after a minute, so that a lost wake-up is a failed test and not a test that hangs.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "fabric/shm/shm_fabric.h"
#include "fabric/wait.h"
#include "shm_job.h"

namespace multigrain {
namespace {

using testing::ShmJob;

constexpr MessageType kType = message_range::kTest;

pid_t start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  _exit(body());
}

// Returns the exit status, or 1000 + the signal that ended the child.
int finish(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Runs each node in a child, on its own mapping of the job memory. `body` returns whether all was well.
void run_nodes(const ShmJob& job, unsigned nodes, const std::function<bool(ShmFabric&)>& body,
               uint64_t frames_bytes = 0) {
  std::vector<pid_t> children;
  for (unsigned n = 0; n < nodes; ++n) {
    children.push_back(start([&] {
      auto fabric = ShmFabric::attach(job.job_fd(), NodeId(static_cast<uint16_t>(n)), job.frames(), frames_bytes);
      if (!fabric) return 2;
      return body(**fabric) ? 0 : 1;
    }));
  }
  for (unsigned n = 0; n < nodes; ++n) EXPECT_EQ(finish(children[n]), 0) << "node " << n;
}

// Each node waits here until all have come: after set_handler, before the first message; and before the end.
void meet(ShmFabric& fabric, uint32_t phase) {
  JobHeader& header = fabric.job().header();
  header.node[fabric.self().value].ready.store(phase);
  for (unsigned n = 0; n < fabric.nodes(); ++n) {
    while (header.node[n].ready.load() < phase) std::this_thread::yield();
  }
}

TEST(ShmProcesses, AtomicsOfAllNodesAddUp) {
  constexpr unsigned kNodes = 4;
  constexpr uint64_t kRounds = 50'000;
  constexpr uint64_t kFrames = 1 << 20;
  const ShmJob job(kNodes, kFrames);
  run_nodes(
      job, kNodes,
      [](ShmFabric& fabric) {
        meet(fabric, 1);
        for (uint64_t i = 0; i < kRounds; ++i) {
          const NodeId at(static_cast<uint16_t>(i % kNodes));
          fabric.fetch_add(at, SegmentId::kFrames, 4096, 1);
          // This is a lock by compare-and-swap around an increment that is not atomic.
          if (i % 16 == 0) {
            while (fabric.compare_and_swap(NodeId(1), SegmentId::kWords, 64, 0, 1) != 0) std::this_thread::yield();
            uint64_t value = 0;
            const auto bytes = std::as_writable_bytes(std::span(&value, 1));
            fabric.get(NodeId(2), SegmentId::kWords, 128, bytes);
            ++value;
            fabric.put(NodeId(2), SegmentId::kWords, 128, bytes);
            if (fabric.fetch_and_set(NodeId(1), SegmentId::kWords, 64, 0) != 1) return false;
          }
        }
        meet(fabric, 2);
        uint64_t sum = 0;
        for (uint16_t n = 0; n < kNodes; ++n) sum += fabric.fetch_add(NodeId(n), SegmentId::kFrames, 4096, 0);
        return sum == kNodes * kRounds &&
               fabric.fetch_add(NodeId(2), SegmentId::kWords, 128, 0) == kNodes * (kRounds / 16);
      },
      kFrames);
}

TEST(ShmProcesses, AllPairsAtOnceKeepTheirOrder) {
  constexpr unsigned kNodes = 4;
  constexpr uint64_t kMessages = 5'000;
  const ShmJob job(kNodes);
  run_nodes(job, kNodes, [](ShmFabric& fabric) {
    struct Context {
      std::array<uint64_t, kNodes> next{};
      uint64_t handled = 0;
      bool wrong = false;
    } context;
    fabric.set_handler(
        kType,
        [](void* c, const Message& message) {
          auto& self = *static_cast<Context*>(c);
          const uint64_t number = message.header.word[0];
          if (number != self.next[message.from.value]++) self.wrong = true;
          for (std::byte b : message.payload) {
            if (b != static_cast<std::byte>(number)) self.wrong = true;
          }
          ++self.handled;
        },
        &context);
    meet(fabric, 1);
    std::mt19937 random(fabric.self().value);
    for (uint64_t i = 0; i < kMessages; ++i) {
      for (uint16_t to = 0; to < kNodes; ++to) {
        if (NodeId(to) == fabric.self()) continue;
        const size_t length = i % 1000 == 999 ? Fabric::kMaxPayload : random() % 3000;
        const std::vector<std::byte> payload(length, static_cast<std::byte>(i));
        fabric.send(NodeId(to), {.type = kType, .word = {i}}, payload, {}, SendContext::kOrdinary);
      }
    }
    fabric.begin_polling();
    while (context.handled < (kNodes - 1) * kMessages) {
      if (fabric.poll() == 0) std::this_thread::yield();
    }
    fabric.end_polling();
    return !context.wrong;
  });
}

TEST(ShmProcesses, APutIsThereWhenALaterMessageIsHandled) {
  constexpr uint64_t kFrames = 1 << 20;
  constexpr uint64_t kRounds = 5'000;
  const ShmJob job(2, kFrames);
  run_nodes(
      job, 2,
      [](ShmFabric& fabric) {
        struct Context {
          ShmFabric* fabric;
          uint64_t handled = 0;
          uint64_t peer_handled = 0;  // how many of our messages the peer says that it has handled
          bool wrong = false;
        } context{&fabric};
        fabric.set_handler(
            kType,
            [](void* c, const Message& message) {
              auto& self = *static_cast<Context*>(c);
              std::array<uint64_t, 32> data;
              self.fabric->get(self.fabric->self(), SegmentId::kFrames, 256 * (message.header.word[0] % 1000),
                               std::as_writable_bytes(std::span(data)));
              for (uint64_t value : data) {
                if (value != message.header.word[0]) self.wrong = true;
              }
              ++self.handled;
              if (self.handled % 100 == 0)
                self.fabric->send(message.from, {.type = kType + 1, .word = {self.handled}}, SendContext::kHandler);
            },
            &context);
        fabric.set_handler(
            kType + 1,
            [](void* c, const Message& message) { static_cast<Context*>(c)->peer_handled = message.header.word[0]; },
            &context);
        meet(fabric, 1);
        const NodeId peer(static_cast<uint16_t>(1 - fabric.self().value));
        for (uint64_t i = 1; i <= kRounds; ++i) {
          std::array<uint64_t, 32> data;
          data.fill(i);
          fabric.put(peer, SegmentId::kFrames, 256 * (i % 1000), std::as_bytes(std::span(data)));
          fabric.send(peer, {.type = kType, .word = {i}}, SendContext::kOrdinary);
          // The sender does not go so far ahead that it writes the same place again before it was read.
          while (context.peer_handled + 500 < i) {
            if (fabric.poll() == 0) std::this_thread::yield();
          }
        }
        while (context.handled < kRounds) {
          if (fabric.poll() == 0) std::this_thread::yield();
        }
        return !context.wrong;
      },
      kFrames);
}

TEST(ShmProcesses, SleepingNodesAnswerEveryTime) {
  constexpr uint64_t kRounds = 10'000;
  const ShmJob job(2);
  run_nodes(job, 2, [](ShmFabric& fabric) {
    struct Context {
      ShmFabric* fabric = nullptr;
      std::atomic<uint64_t> answered{0};
      std::atomic<bool> over{false};
      EventCount event;
    } context;
    context.fabric = &fabric;
    fabric.set_handler(
        kType,
        [](void* c, const Message& message) {
          auto& self = *static_cast<Context*>(c);
          MessageHeader answer = message.header;
          answer.type = kType + 1;
          self.fabric->send(message.from, answer, SendContext::kHandler);
        },
        &context);
    fabric.set_handler(
        kType + 1,
        [](void* c, const Message& message) {
          auto& self = *static_cast<Context*>(c);
          self.answered.store(message.header.word[0]);
          self.event.notify();
        },
        &context);
    std::thread service([&] {
      while (!context.over.load()) fabric.serve();
    });
    meet(fabric, 1);
    // Both nodes ask and answer, and each is mostly asleep.
    std::mt19937 random(fabric.self().value);
    const NodeId peer(static_cast<uint16_t>(1 - fabric.self().value));
    for (uint64_t i = 1; i <= kRounds; ++i) {
      fabric.send(peer, {.type = kType, .word = {i}}, SendContext::kOrdinary);
      wait_until(fabric, WaitPolicy{random() % 2 == 0 ? 0 : random() % 50'000}, context.event,
                 [&] { return context.answered.load() == i; });
    }
    meet(fabric, 2);
    context.over.store(true);
    fabric.wake_service();
    service.join();
    return true;
  });
}

TEST(ShmProcesses, AnAbortedJobEndsSleepersPollersAndSendersAlike) {
  const ShmJob job(4);
  ::testing::internal::CaptureStderr();
  std::vector<pid_t> children;
  for (unsigned n = 0; n < 3; ++n) {
    children.push_back(start([&] {
      auto fabric = ShmFabric::attach(job.job_fd(), NodeId(static_cast<uint16_t>(n)), {}, 0);
      if (!fabric) return 2;
      set_panic_node(n);
      (*fabric)->job().header().node[n].ready.store(1);
      while (true) {
        if (n == 0) (*fabric)->serve();
        if (n == 1) (*fabric)->poll();
        // No node receives: the ring fills up, and this node waits for room.
        if (n == 2) (*fabric)->send(NodeId(3), {.type = kType}, SendContext::kOrdinary);
      }
    }));
  }
  for (unsigned n = 0; n < 3; ++n) {
    while (job.memory().header().node[n].ready.load() == 0) std::this_thread::yield();
  }
  usleep(20'000);  // by now node 0 sleeps and node 2 has filled its ring; it must work in any case
  abort_job(job.memory(), NodeId(3));
  for (unsigned n = 0; n < 3; ++n) EXPECT_EQ(finish(children[n]), ShmFabric::kAbortedStatus) << "node " << n;
  // The launcher has said why.
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ShmProcesses, AnIdleNodeUsesNoProcessorTime) {
  const ShmJob job(2);
  const pid_t child = start([&] {
    auto fabric = ShmFabric::attach(job.job_fd(), NodeId(0), {}, 0);
    if (!fabric) return 2;
    std::thread waker([&] {
      usleep(500'000);
      (*fabric)->wake_service();
    });
    const Nanoseconds before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    (*fabric)->serve();
    const Nanoseconds used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
    waker.join();
    // A service thread that spins would have used the better part of the half second.
    return used < 50'000'000 ? 0 : 1;
  });
  EXPECT_EQ(finish(child), 0);
}

}  // namespace
}  // namespace multigrain
