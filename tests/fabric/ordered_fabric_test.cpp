#include "fabric/emulation/ordered_fabric.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/machine_costs.h"
#include "count/abi.h"
#include "emulation/ordered_execution.h"
#include "fabric/emulation/emulation.h"
#include "fabric/shm/shm_fabric.h"
#include "profile/virtual_time.h"

namespace multigrain {
namespace {

constexpr unsigned kNodes = 2;
constexpr NodeId kHere{0}, kThere{1};
constexpr Nanoseconds kLatency = 1000;
constexpr NetworkModel kNetwork{.latency_ns = kLatency};

mg_count& no_count() {
  static thread_local mg_count count{};
  return count;
}

// A machine of two nodes of one processor each, all of whose participants are threads of a process of its own, since virtual
// time is turned on for good. Only the first node has an ordered fabric: of the second there is the memory, and what sends
// messages.
class Machine {
 public:
  // Runs `here` as the processor of the first node, and `there` as that of the second. A failed expectation in them, or
  // a crash, fails the test.
  static void run(const std::function<void(Machine&)>& here, const std::function<void(Machine&)>& there,
                  unsigned handlers = 1) {
    const pid_t child = fork();
    if (child == 0) {
      {
        Machine machine(handlers);
        machine.run_here(here, there);
      }
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  [[nodiscard]] OrderedFabric& fabric() { return *fabric_; }
  // The second node's word number `i`, as it is now.
  [[nodiscard]] uint64_t word(unsigned i) { return shm_->fetch_add(kThere, SegmentId::kWords, offset(i), 0); }
  void set_word(unsigned i, uint64_t value) { shm_->fetch_and_set(kThere, SegmentId::kWords, offset(i), value); }
  [[nodiscard]] static uint64_t offset(unsigned i) { return i * sizeof(uint64_t); }
  // Sends the first node a message that arrives then, for the second node's processor.
  void send_here(Nanoseconds arrival) {
    sender_->send(kHere, {.type = message_range::kTest}, {}, {}, SendContext::kHandler, arrival);
    ordered::make_ready(virtual_time::handler_of(0), arrival);
  }
  // Ends the first node's handler.
  void end_serving() {
    done_ = true;
    fabric_->wake_service();
  }

 private:
  explicit Machine(unsigned handlers) {
    job_ = std::make_unique<JobMemory>(*JobMemory::map(*create_job_memory({.nodes = kNodes})));
    const Emulation emulation(job_->emulation(), kNodes, kNodes);
    static constexpr MachineCosts kFree{};
    virtual_time::start(emulation.clocks(), {.processors = 1, .costs = &kFree, .count = &no_count});
    auto shm = ShmFabric::attach(job_->borrow(), kHere, {}, 0);
    shm_ = shm->get();
    shm_->carry_arrivals();
    fabric_ = std::make_unique<OrderedFabric>(std::move(*shm), *shm_, kNetwork, emulation.nodes(), 1, handlers);
    sender_ = *ShmFabric::attach(job_->borrow(), kThere, {}, 0);
    sender_->carry_arrivals();
  }

  void run_here(const std::function<void(Machine&)>& here, const std::function<void(Machine&)>& there) {
    std::vector<std::thread> threads;
    for (const unsigned node : {0u, 1u}) {
      const unsigned handler = virtual_time::handler_of(node);
      threads.emplace_back([&, node, handler] {
        ordered::join(handler, 0);
        while (node == 0 && !done_) fabric_->serve();
        ordered::leave();
      });
      threads.emplace_back([&, node, handler] {
        if (node == 0) {
          virtual_time::adopt(0);
          virtual_time::begin_function(0);
          virtual_time::take_part();
        } else {
          ordered::join(handler + 1, 0);
        }
        (node == 0 ? here : there)(*this);
        if (node == 1) end_serving();
        ordered::leave();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<JobMemory> job_;
  ShmFabric* shm_ = nullptr;
  std::unique_ptr<OrderedFabric> fabric_;
  std::unique_ptr<ShmFabric> sender_;
  std::atomic<bool> done_{false};
};

std::span<const std::byte> bytes_of(const uint64_t& value) {
  return std::as_bytes(std::span(&value, 1));
}

TEST(OrderedFabric, OperationsTakeEffectWhenTheyArrive) {
  const auto here = [](Machine& machine) {
    OrderedFabric& fabric = machine.fabric();
    const uint64_t one = 1;
    uint64_t old = 9, got = 9;
    const Completion put = fabric.start_put(kThere, SegmentId::kWords, Machine::offset(0), bytes_of(one));
    const Completion add = fabric.start_fetch_add(kThere, SegmentId::kWords, Machine::offset(1), 5, old);
    const Completion get =
        fabric.start_get(kThere, SegmentId::kWords, Machine::offset(2), std::as_writable_bytes(std::span(&got, 1)));
    // This processor goes on. Nothing has happened.
    EXPECT_EQ(machine.word(0), 0u);
    EXPECT_EQ(virtual_time::stamp(), 0u);
    fabric.wait(put);
    EXPECT_EQ(virtual_time::stamp(), 2 * kLatency);
    fabric.wait(add);
    fabric.wait(get);
    EXPECT_EQ(old, 40u);
    EXPECT_EQ(got, 7u);
    EXPECT_EQ(fabric.compare_and_swap(kThere, SegmentId::kWords, Machine::offset(1), 45, 50), 45u);
    EXPECT_EQ(virtual_time::stamp(), 4 * kLatency);
  };
  const auto there = [](Machine& machine) {
    ordered::pass(kLatency - 1);
    EXPECT_EQ(machine.word(0), 0u);
    // What is written before the requests arrive is found by them.
    machine.set_word(1, 40);
    machine.set_word(2, 7);
    ordered::pass(kLatency + 1);
    EXPECT_EQ(machine.word(0), 1u);
    EXPECT_EQ(machine.word(1), 45u);
    machine.set_word(2, 8);
    ordered::pass(3 * kLatency - 1);
    EXPECT_EQ(machine.word(1), 45u);
    ordered::pass(3 * kLatency + 1);
    EXPECT_EQ(machine.word(1), 50u);
  };
  Machine::run(here, there);
}

TEST(OrderedFabric, TheCallerCanGoOnWhenAnOperationHasTakenEffect) {
  const auto here = [](Machine& machine) {
    uint64_t old = 9;
    const Completion add = machine.fabric().start_fetch_add(kThere, SegmentId::kWords, 0, 1, old);
    machine.fabric().await_effect(add);
    EXPECT_EQ(old, 3u);
    EXPECT_EQ(virtual_time::stamp(), 0u);
  };
  const auto there = [](Machine& machine) {
    ordered::pass(kLatency - 1);
    machine.set_word(0, 3);
    ordered::pass(kLatency + 1);
    EXPECT_EQ(machine.word(0), 4u);
  };
  Machine::run(here, there);
}

TEST(OrderedFabric, APieceIsWrittenWhereItBelongsAndOnlyThen) {
  const auto here = [](Machine& machine) {
    const std::array<uint64_t, 2> values{11, 13};
    Completion put;
    {
      const std::array<Piece, 2> pieces{Piece{reinterpret_cast<const std::byte*>(&values[0]), 0, 8},
                                        Piece{reinterpret_cast<const std::byte*>(&values[1]), 16, 8}};
      put = machine.fabric().start_put_pieces(kThere, SegmentId::kWords, 0, pieces);
    }
    EXPECT_EQ(machine.word(0), 0u);
    machine.fabric().wait(put);
  };
  const auto there = [](Machine& machine) {
    ordered::pass(kLatency - 1);
    EXPECT_EQ(machine.word(0), 0u);
    ordered::pass(2 * kLatency);
    EXPECT_EQ(machine.word(0), 11u);
    EXPECT_EQ(machine.word(1), 0u);
    EXPECT_EQ(machine.word(2), 13u);
  };
  Machine::run(here, there);
}

TEST(OrderedFabric, ThereIsRoomForAnyNumberOfOperations) {
  static constexpr unsigned kMany = 3 * OrderedFabric::kMostPending;
  const auto here = [](Machine& machine) {
    std::vector<uint64_t> old(kMany);
    std::vector<Completion> under_way;
    for (uint64_t& each : old)
      under_way.push_back(machine.fabric().start_fetch_add(kThere, SegmentId::kWords, 0, 1, each));
    for (const Completion completion : under_way) machine.fabric().wait(completion);
    // They have taken effect in the order in which they were started.
    for (unsigned i = 0; i < kMany; ++i) EXPECT_EQ(old[i], i);
  };
  const auto there = [](Machine& machine) {
    ordered::pass(10 * kLatency);
    EXPECT_EQ(machine.word(0), kMany);
  };
  Machine::run(here, there);
}

// Three messages arrive 100 ns after each other, and each takes 1000 ns to handle.
std::vector<Nanoseconds> times_of_handlers(unsigned handlers) {
  static std::vector<Nanoseconds> began;
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const auto here = [](Machine& machine) {
    const auto handle = [](void*, const Message&) {
      began.push_back(virtual_time::stamp());
      virtual_time::internal::spend(1'000'000);
    };
    machine.fabric().set_handler(message_range::kTest, handle, nullptr);
  };
  const auto there = [&](Machine& machine) {
    for (const Nanoseconds arrival : {500u, 600u, 700u}) machine.send_here(arrival);
    ordered::pass(10'000);
    for (const Nanoseconds at : began) EXPECT_EQ(write(ends[1], &at, sizeof at), ssize_t{sizeof at});
  };
  Machine::run(here, there, handlers);
  close(ends[1]);
  std::vector<Nanoseconds> times;
  for (Nanoseconds at = 0; read(ends[0], &at, sizeof at) == sizeof at;) times.push_back(at);
  close(ends[0]);
  return times;
}

TEST(OrderedFabric, AHandlerHandlesOneMessageAfterTheOther) {
  EXPECT_EQ(times_of_handlers(1), (std::vector<Nanoseconds>{500, 1500, 2500}));
}

TEST(OrderedFabric, HandlersOfANodeAreBusyAtTheSameTime) {
  EXPECT_EQ(times_of_handlers(2), (std::vector<Nanoseconds>{500, 600, 1500}));
  EXPECT_EQ(times_of_handlers(3), (std::vector<Nanoseconds>{500, 600, 700}));
}

// The threads of a node that want a lock whose holder has given its turn away let the holder go on.
TEST(OrderedFabric, ALockMayBeHeldWhileItsHolderWaits) {
  static SpinLock lock;
  const auto here = [](Machine& machine) {
    lock.lock();
    static_cast<void>(machine.fabric().fetch_add(kThere, SegmentId::kWords, 0, 1));
    EXPECT_EQ(virtual_time::stamp(), 2 * kLatency);
    lock.unlock();
  };
  const auto there = [](Machine& machine) {
    ordered::pass(kLatency / 2);
    lock.lock();
    EXPECT_EQ(machine.word(0), 1u);
    lock.unlock();
  };
  Machine::run(here, there);
}

}  // namespace
}  // namespace multigrain
