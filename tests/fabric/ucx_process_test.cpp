// These test nodes over UCX as they are in a run: forked processes, each with a service thread.
//
// The transports are those of UCX_TLS: the program runs once for each (CMakeLists.txt). Every child kills itself after
// a minute, so that a lost wake-up is a failed test and not a test that hangs.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fabric/wait.h"
#include "ucx_job.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#endif
#endif

namespace multigrain {
namespace {

using testing::UcxJob;

constexpr MessageType kType = message_range::kTest;
constexpr uint64_t kFrames = uint64_t{64} << 20;

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

// The processes of a test share this besides the network.
struct Board {
  std::atomic<uint32_t> phase[8];
  std::atomic<uint64_t> seen[8];  // bits: nodes that were reported as lost
};

class UcxProcesses : public ::testing::Test {
 protected:
  UcxProcesses() {
    board_ =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~UcxProcesses() override { munmap(static_cast<void*>(board_), sizeof(Board)); }

  // Each node waits here until all have come.
  void meet(const Fabric& fabric, uint32_t phase) const {
    board_->phase[fabric.self().value].store(phase);
    for (unsigned n = 0; n < fabric.nodes(); ++n) {
      while (board_->phase[n].load() < phase) usleep(100);
    }
  }

  // Runs each node in a child. `body` returns whether all was well; a service thread runs meanwhile.
  void run_nodes(const UcxJob& job, unsigned nodes, const std::function<bool(UcxFabric&)>& prepare,
                 const std::function<bool(UcxFabric&)>& body) {
    std::vector<pid_t> children;
    for (unsigned n = 0; n < nodes; ++n) {
      children.push_back(start([&, n] {
        auto fabric = job.join(n);
        if (!prepare(*fabric)) return 3;
        std::atomic<bool> over{false};
        std::thread service([&] {
          while (!over.load()) fabric->serve();
        });
        meet(*fabric, 1000);
        const bool good = body(*fabric);
        meet(*fabric, 2000);
        over.store(true);
        fabric->wake_service();
        service.join();
        fabric.reset();
        return good ? 0 : 1;
      }));
    }
    for (unsigned n = 0; n < nodes; ++n) EXPECT_EQ(finish(children[n]), 0) << "node " << n;
  }

  Board* board_;
};

TEST_F(UcxProcesses, AtomicsOfAllThreadsOfAllNodesAddUp) {
  constexpr unsigned kNodes = 3;
  constexpr unsigned kThreads = 2;
  constexpr uint64_t kRounds = 1200;
  const UcxJob job(kNodes, kFrames);
  run_nodes(
      job, kNodes, [](UcxFabric&) { return true; },
      [&](UcxFabric& fabric) {
        std::atomic<bool> good{true};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kThreads; ++t) {
          threads.emplace_back([&] {
            for (uint64_t i = 0; i < kRounds; ++i) {
              const NodeId at(static_cast<uint16_t>(i % kNodes));
              fabric.fetch_add(at, SegmentId::kFrames, 4096, 1);
              // This is a lock by compare-and-swap around an increment that is not atomic.
              if (i % 16 != 0) continue;
              while (fabric.compare_and_swap(NodeId(1), SegmentId::kWords, 64, 0, 1) != 0) std::this_thread::yield();
              uint64_t value = 0;
              const auto bytes = std::as_writable_bytes(std::span(&value, 1));
              fabric.get(NodeId(2), SegmentId::kWords, 128, bytes);
              ++value;
              fabric.put(NodeId(2), SegmentId::kWords, 128, bytes);
              if (fabric.fetch_and_set(NodeId(1), SegmentId::kWords, 64, 0) != 1) good = false;
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        meet(fabric, 1001);
        uint64_t sum = 0;
        for (uint16_t n = 0; n < kNodes; ++n) sum += fabric.fetch_add(NodeId(n), SegmentId::kFrames, 4096, 0);
        return good && sum == kNodes * kThreads * kRounds &&
               fabric.fetch_add(NodeId(2), SegmentId::kWords, 128, 0) == kNodes * kThreads * (kRounds / 16);
      });
}

// Several threads send messages of all sizes, some with slices, and handlers answer them. Everything arrives once, in
// order, and unharmed.
struct Storm {
  static constexpr unsigned kNodes = 3;
  UcxFabric* fabric = nullptr;
  std::array<uint64_t, kNodes> next{};
  std::array<uint64_t, kNodes> next_answer{};
  std::atomic<uint64_t> handled{0};
  std::atomic<uint64_t> answers{0};
  std::atomic<bool> wrong{false};
  std::array<std::array<std::byte, 300'000>, kNodes> slice;
};

TEST_F(UcxProcesses, AllPairsAtOnceKeepTheirOrder) {
  constexpr uint64_t kMessages = 2'500;
  const UcxJob job(Storm::kNodes, kFrames);
  static Storm storm;
  run_nodes(
      job, Storm::kNodes,
      [](UcxFabric& fabric) {
        storm.fabric = &fabric;
        // The node's own frames have a pattern that receivers know.
        std::vector<std::byte> pattern(1 << 20);
        for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 4096);
        fabric.put(fabric.self(), SegmentId::kFrames, 0, pattern);
        fabric.set_handler(
            kType,
            [](void*, const Message& message) {
              const unsigned from = message.from.value;
              const uint64_t number = message.header.word[0];
              if (number != storm.next[from]++) storm.wrong = true;
              for (std::byte b : message.payload)
                if (b != static_cast<std::byte>(number)) storm.wrong = true;
              if (message.slice.length != 0) {
                const std::span<std::byte> bytes(storm.slice[from].data(), message.slice.length);
                storm.fabric->fetch(message, bytes);
                for (size_t i = 0; i < bytes.size(); ++i) {
                  const size_t at = message.slice.offset + i;
                  if (bytes[i] != static_cast<std::byte>(at * 7 + at / 4096)) storm.wrong = true;
                }
              }
              storm.fabric->send(message.from, {.type = kType + 1, .word = {number}}, message.payload, {},
                                 SendContext::kHandler);
              ++storm.handled;
            },
            nullptr);
        fabric.set_handler(
            kType + 1,
            [](void*, const Message& message) {
              const uint64_t number = message.header.word[0];
              if (number != storm.next_answer[message.from.value]++) storm.wrong = true;
              for (std::byte b : message.payload)
                if (b != static_cast<std::byte>(number)) storm.wrong = true;
              ++storm.answers;
            },
            nullptr);
        return true;
      },
      [&](UcxFabric& fabric) {
        std::mt19937 random(fabric.self().value);
        for (uint64_t i = 0; i < kMessages; ++i) {
          for (uint16_t to = 0; to < Storm::kNodes; ++to) {
            if (NodeId(to) == fabric.self()) continue;
            const bool long_one = i % 250 == 249;
            const size_t length = long_one ? Fabric::kMaxPayload : i % 4 == 0 ? 0 : random() % 3000;
            const std::vector<std::byte> payload(length, static_cast<std::byte>(i));
            RemoteSlice slice;
            if (i % 3 == 0)
              slice = {SegmentId::kFrames, random() % 500'000, static_cast<uint32_t>(random() % 9000 + 1)};
            if (i % 500 == 0) slice = {SegmentId::kFrames, random() % 500'000, 200'000};  // too long to come along
            fabric.send(NodeId(to), {.type = kType, .word = {i}}, payload, slice, SendContext::kOrdinary);
          }
        }
        constexpr uint64_t kAll = (Storm::kNodes - 1) * kMessages;
        while (storm.handled.load() < kAll || storm.answers.load() < kAll) usleep(100);
        return !storm.wrong.load();
      });
}

// Threads of one node send in batches of their own, some of which wait for room in the middle. Every message of a batch
// is answered, in the order of its thread, and a thread that has ended its batch need not do anything for that.
TEST_F(UcxProcesses, BatchesOfSeveralThreadsKeepNothingBack) {
  constexpr unsigned kThreads = 3;
  constexpr uint64_t kRounds = 60;
  struct Batches {
    UcxFabric* fabric = nullptr;
    std::array<uint64_t, kThreads> next{}, next_answer{};
    std::array<std::atomic<uint64_t>, kThreads> answers{};
    std::atomic<bool> wrong{false};
  };
  const UcxJob job(2, kFrames);
  static Batches batches;
  run_nodes(
      job, 2,
      [](UcxFabric& fabric) {
        batches.fabric = &fabric;
        // `small` is the sender's thread.
        fabric.set_handler(
            kType,
            [](void*, const Message& message) {
              if (message.header.word[0] != batches.next[message.header.small]++) batches.wrong = true;
              for (std::byte b : message.payload)
                if (b != static_cast<std::byte>(message.header.word[0])) batches.wrong = true;
              MessageHeader answer = message.header;
              answer.type = kType + 1;
              batches.fabric->send(message.from, answer, SendContext::kHandler);
            },
            nullptr);
        fabric.set_handler(
            kType + 1,
            [](void*, const Message& message) {
              const unsigned thread = message.header.small;
              if (message.header.word[0] != batches.next_answer[thread]++) batches.wrong = true;
              batches.answers[thread].fetch_add(1);
            },
            nullptr);
        return true;
      },
      [&](UcxFabric& fabric) {
        const NodeId other(static_cast<uint16_t>(1 - fabric.self().value));
        std::vector<std::thread> threads;
        for (uint16_t t = 0; t < kThreads; ++t) {
          threads.emplace_back([&fabric, other, t] {
            std::mt19937 random(t + 17u * fabric.self().value);
            uint64_t sent = 0;
            for (uint64_t round = 0; round < kRounds; ++round) {
              {
                const MessageBatch batch(fabric);
                for (uint64_t i = random() % 120 + 1; i != 0; --i, ++sent) {
                  // Now and then a message is so long that the window fills.
                  const size_t length = round % 10 == 9     ? random() % 40'000
                                        : random() % 8 == 0 ? random() % 6000
                                                            : random() % 300;
                  const std::vector<std::byte> payload(length, static_cast<std::byte>(sent));
                  fabric.send(other, {.type = kType, .small = t, .word = {sent}}, payload, {}, SendContext::kOrdinary);
                }
              }
              // For some batches the thread waits until all of the batch is answered, as it would have to wait for a
              // lone message.
              while (round % 3 == 0 && batches.answers[t].load() != sent) usleep(50);
            }
            while (batches.answers[t].load() != sent) usleep(50);
          });
        }
        for (std::thread& thread : threads) thread.join();
        return !batches.wrong.load();
      });
}

TEST_F(UcxProcesses, HandlersNeverWaitForRoom) {
  // Node 0 asks once; node 1's handler answers with far more than the window holds, while node 0 handles nothing.
  constexpr uint64_t kAnswers = 300;
  const UcxJob job(2, kFrames);
  struct Context {
    UcxFabric* fabric;
    std::atomic<uint64_t> next{0};
    std::atomic<bool> wrong{false};
  };
  static Context context;
  run_nodes(
      job, 2,
      [](UcxFabric& fabric) {
        context.fabric = &fabric;
        fabric.set_handler(
            kType,
            [](void*, const Message& message) {
              std::vector<std::byte> payload(30'000);
              for (uint64_t i = 0; i < kAnswers; ++i) {
                std::fill(payload.begin(), payload.end(), static_cast<std::byte>(i));
                context.fabric->send(message.from, {.type = kType + 1, .word = {i}}, payload, {},
                                     SendContext::kHandler);
              }
            },
            nullptr);
        fabric.set_handler(
            kType + 1,
            [](void*, const Message& message) {
              if (message.header.word[0] != context.next.load() || message.payload.size() != 30'000)
                context.wrong = true;
              for (std::byte b : message.payload)
                if (b != static_cast<std::byte>(context.next.load())) context.wrong = true;
              ++context.next;
            },
            nullptr);
        return true;
      },
      [](UcxFabric& fabric) {
        if (fabric.self() == NodeId(1)) return true;
        // A thread that has begun polling should poll, but this one does not, so that the answers pile up.
        fabric.begin_polling();
        fabric.send(NodeId(1), {.type = kType}, SendContext::kOrdinary);
        usleep(100'000);
        fabric.end_polling();
        while (context.next.load() < kAnswers) usleep(100);
        return !context.wrong.load();
      });
}

TEST_F(UcxProcesses, APutIsThereWhenALaterMessageIsHandled) {
  constexpr uint64_t kRounds = 2'000;
  const UcxJob job(2, kFrames);
  struct Context {
    UcxFabric* fabric;
    std::atomic<uint64_t> handled{0};
    std::atomic<uint64_t> peer_handled{0};  // how many of our messages the peer says that it has handled
    std::atomic<bool> wrong{false};
  };
  static Context context;
  run_nodes(
      job, 2,
      [](UcxFabric& fabric) {
        context.fabric = &fabric;
        fabric.set_handler(
            kType,
            [](void*, const Message& message) {
              std::array<uint64_t, 32> data;
              context.fabric->get(context.fabric->self(), SegmentId::kFrames, 256 * (message.header.word[0] % 1000),
                                  std::as_writable_bytes(std::span(data)));
              for (uint64_t value : data) {
                if (value != message.header.word[0]) context.wrong = true;
              }
              if (++context.handled % 100 == 0)
                context.fabric->send(message.from, {.type = kType + 1, .word = {context.handled.load()}},
                                     SendContext::kHandler);
            },
            nullptr);
        fabric.set_handler(
            kType + 1, [](void*, const Message& message) { context.peer_handled = message.header.word[0]; }, nullptr);
        return true;
      },
      [](UcxFabric& fabric) {
        const NodeId peer(static_cast<uint16_t>(1 - fabric.self().value));
        for (uint64_t i = 1; i <= kRounds; ++i) {
          std::array<uint64_t, 32> data;
          data.fill(i);
          fabric.put(peer, SegmentId::kFrames, 256 * (i % 1000), std::as_bytes(std::span(data)));
          fabric.send(peer, {.type = kType, .word = {i}}, SendContext::kOrdinary);
          // The sender does not go so far ahead that it writes the same place again before it was read.
          while (context.peer_handled.load() + 500 < i) usleep(10);
        }
        while (context.handled.load() < kRounds) usleep(100);
        return !context.wrong.load();
      });
}

// Several threads make scattered puts into each other's memory, of lengths that UCX sends in different ways.
TEST_F(UcxProcesses, ScatteredPutsOfAllThreadsOfAllNodesArrive) {
  constexpr unsigned kNodes = 3, kThreads = 3, kRounds = 200;
  constexpr uint64_t kPage = 16384;
  const UcxJob job(kNodes, kFrames);
  run_nodes(
      job, kNodes, [](UcxFabric&) { return true; },
      [](UcxFabric& fabric) {
        std::atomic<bool> good{true};
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < kThreads; ++t) {
          threads.emplace_back([&, t] {
            // Each thread has a page at every node. It writes the same contents there anew, each time in other pieces.
            const uint64_t page = (fabric.self().value * kThreads + t) * kPage;
            std::vector<std::byte> bytes(kPage), found(kPage);
            for (unsigned round = 1; round <= kRounds; ++round) {
              for (size_t i = 0; i < kPage; ++i) bytes[i] = static_cast<std::byte>(round * 31 + i * 7 + t);
              const auto length = static_cast<uint32_t>(16 + round * 37 % 2000);
              std::vector<Piece> pieces;
              for (uint32_t at = 0; at < kPage; at += length)
                pieces.push_back({&bytes[at], at, std::min(length, static_cast<uint32_t>(kPage) - at)});
              std::array<Completion, kNodes> under_way;
              for (uint16_t n = 0; n < kNodes; ++n)
                under_way[n] = fabric.start_put_pieces(NodeId(n), SegmentId::kFrames, page, pieces);
              for (const Completion completion : under_way) fabric.wait(completion);
              const NodeId somewhere(static_cast<uint16_t>(round % kNodes));
              fabric.get(somewhere, SegmentId::kFrames, page, found);
              if (found != bytes) good = false;
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        return good.load();
      });
}

TEST_F(UcxProcesses, SleepingNodesAnswerEveryTime) {
  constexpr uint64_t kRounds = 6'000;
  const UcxJob job(2);
  struct Context {
    UcxFabric* fabric = nullptr;
    std::atomic<uint64_t> answered{0};
    EventCount event;
  };
  static Context context;
  run_nodes(
      job, 2,
      [](UcxFabric& fabric) {
        context.fabric = &fabric;
        fabric.set_handler(
            kType,
            [](void*, const Message& message) {
              MessageHeader answer = message.header;
              answer.type = kType + 1;
              context.fabric->send(message.from, answer, SendContext::kHandler);
            },
            nullptr);
        fabric.set_handler(
            kType + 1,
            [](void*, const Message& message) {
              context.answered.store(message.header.word[0]);
              context.event.notify();
            },
            nullptr);
        return true;
      },
      [](UcxFabric& fabric) {
        // Both nodes ask and answer, and each is mostly asleep.
        std::mt19937 random(fabric.self().value);
        const NodeId peer(static_cast<uint16_t>(1 - fabric.self().value));
        for (uint64_t i = 1; i <= kRounds; ++i) {
          const WaitPolicy policy{random() % 2 == 0 ? 0 : random() % 100'000};
          if (i % 2 == 0) {
            PollingScope polling(fabric);
            fabric.send(peer, {.type = kType, .word = {i}}, SendContext::kOrdinary);
            wait_until(polling, policy, context.event, [&] { return context.answered.load() == i; });
          } else {
            fabric.send(peer, {.type = kType, .word = {i}}, SendContext::kOrdinary);
            wait_until(fabric, policy, context.event, [&] { return context.answered.load() == i; });
          }
        }
        return true;
      });
}

TEST_F(UcxProcesses, BulkGetsAndPutsOfManyChunks) {
  const UcxJob job(2, kFrames);
  run_nodes(
      job, 2,
      [](UcxFabric& fabric) {
        std::vector<uint64_t> data(kFrames / 16);
        for (size_t i = 0; i < data.size(); ++i) data[i] = i * 3 + fabric.self().value;
        fabric.put(fabric.self(), SegmentId::kFrames, 0, std::as_bytes(std::span(data)));
        return true;
      },
      [&](UcxFabric& fabric) {
        const NodeId peer(static_cast<uint16_t>(1 - fabric.self().value));
        std::vector<uint64_t> data(kFrames / 16);
        const auto bytes = std::as_writable_bytes(std::span(data));
        std::vector<Completion> started;
        for (size_t at = 0; at < bytes.size(); at += 20'480)
          started.push_back(fabric.start_get(peer, SegmentId::kFrames, at,
                                             bytes.subspan(at, std::min<size_t>(20'480, bytes.size() - at))));
        for (const Completion one : started) fabric.wait(one);
        for (size_t i = 0; i < data.size(); ++i)
          if (data[i] != i * 3 + peer.value) return false;
        for (const Completion one : started)
          if (!fabric.is_complete(one)) return false;
        // This writes back into the other half, in one piece that crosses chunks.
        fabric.put(peer, SegmentId::kFrames, kFrames / 2, bytes);
        meet(fabric, 1001);
        std::fill(data.begin(), data.end(), 0);
        fabric.get(fabric.self(), SegmentId::kFrames, kFrames / 2, bytes);
        for (size_t i = 0; i < data.size(); ++i)
          if (data[i] != i * 3 + fabric.self().value) return false;
        return true;
      });
}

TEST_F(UcxProcesses, AnIdleNodeUsesNoProcessorTime) {
  UcxJob job(2);
  job.options().silence_limit = 4'000'000'000;
  run_nodes(
      job, 2, [](UcxFabric&) { return true; },
      [](UcxFabric&) {
        const Nanoseconds before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        usleep(1'000'000);
        // A service thread that spins would have used the better part of the second.
        return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before < 100'000'000;
      });
}

// The process runs the destructors of UCX's libraries while its threads are in the fabric, or enter it.
// The fabric and its threads are there until the process is gone; that is the point, and no leak.
void stop_looking_for_leaks() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  __lsan_disable();
#endif
#endif
}

TEST_F(UcxProcesses, AProcessEndsWithoutTakingTheFabricDown) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP()
      << "libucs destroys a lock of its own in its destructor, while its thread lives: a race that is not ours";
#endif
#endif
  const UcxJob job(2, kFrames);
  std::vector<pid_t> children;
  for (unsigned n = 0; n < 2; ++n) {
    children.push_back(start([&, n]() -> int {
      stop_looking_for_leaks();
      UcxFabric* const fabric = job.join(n).release();
      for (int i = 0; i < 2; ++i) {
        std::thread([=] {
          while (true) i == 0 ? fabric->serve() : static_cast<void>(fabric->poll());
        }).detach();
      }
      uint64_t value = 0;
      fabric->get(NodeId(static_cast<uint16_t>(1 - n)), SegmentId::kWords, 0,
                  std::as_writable_bytes(std::span(&value, 1)));
      meet(*fabric, 1);
      fabric->stop();
      std::exit(7);
    }));
  }
  for (unsigned n = 0; n < 2; ++n) EXPECT_EQ(finish(children[n]), 7) << "node " << n;
}

// Returns the objects of a process that other processes could reach by a name: shared memory that is a file or a System
// V segment, and local sockets. An object without a name cannot be left behind either.
std::set<std::string> names_of(pid_t process) {
  const std::filesystem::path folder = "/proc/" + std::to_string(process);
  std::set<std::string> names;
  std::ifstream maps(folder / "maps");
  for (std::string line; std::getline(maps, line);) {
    for (const char* const place : {"/dev/shm/", "/SYSV"})
      if (const size_t at = line.find(place); at != std::string::npos) names.insert(line.substr(at));
  }
  std::set<std::string> sockets;
  for (const auto& descriptor : std::filesystem::directory_iterator(folder / "fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(descriptor, gone).string();
    if (target.starts_with("/dev/shm/")) names.insert(target);
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::ifstream local("/proc/net/unix");
  for (std::string line; std::getline(local, line);) {
    std::istringstream fields(line);
    std::string other, inode, name;
    for (int i = 0; i < 6; ++i) fields >> other;
    fields >> inode >> name;
    if (!name.empty() && sockets.contains(inode)) names.insert(name);
  }
  return names;
}

// Node 2 of three ends by `number`, and no node talks to it. The other nodes must hear of it soon.
void lose_node_2(Board* board, int number) {
  struct Place {
    Board* board;
    unsigned self;
  };
  std::vector<pid_t> children;
  UcxJob job(3, kFrames);
  job.options().silence_limit = 2'000'000'000;
  job.options().peer_failed = [](void* context, NodeId node, const char*) {
    const auto* const place = static_cast<Place*>(context);
    place->board->seen[place->self].fetch_or(uint64_t{1} << node.value);
  };
  for (unsigned n = 0; n < 3; ++n) {
    children.push_back(start([&, n]() -> int {
      Place place{board, n};
      job.options().context = &place;
      auto fabric = job.join(n);
      board->phase[n].store(1);
      while (true) fabric->serve();
    }));
  }
  for (unsigned n = 0; n < 3; ++n)
    while (board->phase[n].load() == 0) usleep(1000);
  usleep(1'200'000);  // all nodes are asleep, and have had heartbeats
  EXPECT_EQ(board->seen[0].load() | board->seen[1].load() | board->seen[2].load(), 0u);
  for (const pid_t child : children) EXPECT_EQ(names_of(child), std::set<std::string>());
  const Nanoseconds before = monotonic_ns();
  kill(children[2], number);
  while ((board->seen[0].load() == 0 || board->seen[1].load() == 0) && monotonic_ns() - before < 20'000'000'000)
    usleep(1000);
  EXPECT_EQ(board->seen[0].load(), 4u);
  EXPECT_EQ(board->seen[1].load(), 4u);
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) finish(child);
}

// No node will say that the pieces are there: the put ends when the node is given up.
TEST_F(UcxProcesses, AScatteredPutToANodeThatIsGoneEnds) {
  static std::atomic<bool> lost{false};
  UcxJob job(2, kFrames);
  job.options().silence_limit = 2'000'000'000;
  job.options().peer_failed = [](void*, NodeId, const char*) { lost = true; };
  const pid_t writer = start([&]() -> int {
    auto fabric = job.join(0);
    std::thread([&] {
      while (true) fabric->serve();
    }).detach();
    std::array<std::byte, 64> bytes{};
    const std::array<Piece, 2> pieces{Piece{bytes.data(), 0, 8}, Piece{bytes.data(), 100, 8}};
    const auto put = [&] { fabric->wait(fabric->start_put_pieces(NodeId(1), SegmentId::kFrames, 0, pieces)); };
    put();
    board_->phase[0].store(1);
    while (!lost) put();
    put();
    _exit(0);  // the other thread still serves
  });
  const pid_t target = start([&]() -> int {
    auto fabric = job.join(1);
    while (true) fabric->serve();
  });
  while (board_->phase[0].load() == 0) usleep(1000);
  kill(target, SIGSTOP);
  EXPECT_EQ(finish(writer), 0);
  kill(target, SIGKILL);
  finish(target);
}

TEST_F(UcxProcesses, AKilledNodeIsMissed) {
  lose_node_2(board_, SIGKILL);
}

TEST_F(UcxProcesses, AStoppedNodeIsMissed) {
  lose_node_2(board_, SIGSTOP);
}

}  // namespace
}  // namespace multigrain
