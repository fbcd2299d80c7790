// These test the futex call of a guest whose threads run on several nodes: its results beside the system's own, and a
// mutex and a condition variable that are made with it, over two fabrics.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <climits>
#include <mutex>
#include <random>

#include "../fabric/shm_job.h"
#include "futex_machine.h"
#include "futex_thread.h"
#include "loopback_fabric.h"

namespace multigrain::testing {
namespace {

using namespace std::chrono_literals;

std::vector<std::unique_ptr<Fabric>> loopback(unsigned nodes) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (auto& fabric : LoopbackFabric::machine(nodes)) fabrics.push_back(std::move(fabric));
  return fabrics;
}
std::vector<std::unique_ptr<Fabric>> attach_all(const ShmJob& job, unsigned nodes) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (unsigned n = 0; n < nodes; ++n) fabrics.push_back(job.attach(n));
  return fabrics;
}

// --- One call beside the system's

class CallAsTheSystem {
 public:
  CallAsTheSystem() : machine_(loopback(2), WaitPolicy{0}) {}

  // Makes the same call by both, of words that are the same before. Returns success if the results and the words
  // afterwards are the same, too.
  ::testing::AssertionResult is_same(int operation, uint32_t value, const timespec* timeout, uint32_t second_value,
                                     uint64_t offset, uint64_t second_offset, uint32_t third_value, uint32_t before) {
    theirs_ = {before, before + 1};
    ours_[0].store(before);
    ours_[1].store(before + 1);
    const auto* fourth =
        Futexes::has_timeout(operation) ? timeout : reinterpret_cast<const timespec*>(uint64_t{second_value});
    const long result = syscall(SYS_futex, reinterpret_cast<uint64_t>(theirs_.data()) + offset, operation, value,
                                fourth, reinterpret_cast<uint64_t>(theirs_.data()) + second_offset, third_value);
    const long system = result == -1 ? -errno : result;
    const uint64_t base = reinterpret_cast<uint64_t>(ours_.data());
    for (unsigned node = 0; node < 2; ++node) {
      ours_[0].store(before);
      ours_[1].store(before + 1);
      const long own = machine_.node(node).call(caller_, base + offset, operation, value, timeout, second_value,
                                                base + second_offset, third_value);
      if (own != system || ours_[0].load() != theirs_[0] || ours_[1].load() != theirs_[1])
        return ::testing::AssertionFailure()
               << "operation " << operation << ", value " << value << ", offset " << offset << ", second value "
               << second_value << ", offset " << second_offset << ", third " << std::hex << third_value << std::dec
               << ", word " << before << ": the system " << system << ", here " << own << "; words " << theirs_[0]
               << " " << theirs_[1] << ", " << ours_[0].load() << " " << ours_[1].load();
    }
    return ::testing::AssertionSuccess();
  }

 private:
  FutexMachine machine_;
  FutexCaller caller_;
  alignas(64) std::array<uint32_t, 2> theirs_{};
  alignas(64) std::array<std::atomic<uint32_t>, 2> ours_{};
};

TEST(FutexCall, ArgumentsAreCheckedAsTheSystemDoes) {
  CallAsTheSystem calls;
  constexpr std::array kTimes{timespec{0, 0}, timespec{0, 1000}, timespec{-1, 0}, timespec{0, -1},
                              timespec{0, 1'000'000'000}};
  constexpr std::array<uint64_t, 5> kOffsets{0, 4, 1, 2, uint64_t{1} << 63};
  constexpr std::array<uint32_t, 5> kValues{0, 1, 2, 0x7fffffff, ~uint32_t{0}};
  std::mt19937 random(7);
  const auto any = [&](const auto& of) -> const auto& { return of[random() % of.size()]; };
  for (int i = 0; i < 20'000; ++i) {
    const int operation =
        std::array{FUTEX_WAIT,        FUTEX_WAKE,        FUTEX_FD, FUTEX_REQUEUE, FUTEX_CMP_REQUEUE, FUTEX_WAKE_OP,
                   FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET, 77}[random() % 9] |
        FUTEX_PRIVATE_FLAG | (random() % 8 == 0 ? FUTEX_CLOCK_REALTIME : 0);
    const int command = operation & FUTEX_CMD_MASK;
    const uint64_t offset = random() % 4 == 0 ? any(kOffsets) : 4 * (random() % 2);
    const uint64_t second_offset = random() % 4 == 0 ? any(kOffsets) : 4 * (random() % 2);
    const uint32_t third = command == FUTEX_WAKE_OP ? static_cast<uint32_t>(random()) : any(kValues);
    ASSERT_TRUE(
        calls.is_same(operation, any(kValues), &any(kTimes), any(kValues), offset, second_offset, third, any(kValues)));
  }
}

TEST(FutexCall, WhatIsNotThere) {
  CallAsTheSystem calls;
  FutexMachine machine(loopback(1), WaitPolicy{0});
  FutexCaller caller;
  for (const int operation : {FUTEX_LOCK_PI, FUTEX_UNLOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_WAIT_REQUEUE_PI,
                              FUTEX_CMP_REQUEUE_PI, FUTEX_LOCK_PI2, FUTEX_FD})
    EXPECT_EQ(machine.node(0).call(caller, 4096, operation, 0, nullptr, 0, 0, 0), -ENOSYS);
  // These are addresses that the guest cannot read.
  EXPECT_EQ(machine.node(0).call(caller, 4096, FUTEX_WAIT, 0, nullptr, 0, 0, 0), -EFAULT);
  EXPECT_EQ(machine.node(0).call(caller, 4096, FUTEX_CMP_REQUEUE, 0, nullptr, 0, 4096, 0), -EFAULT);
  EXPECT_EQ(machine.node(0).call(caller, 4096, FUTEX_WAKE_OP, 0, nullptr, 0, 4096, 0), -EFAULT);
  EXPECT_EQ(machine.node(0).call(caller, 4096, FUTEX_WAKE, 1, nullptr, 0, 0, 0), 0);
  EXPECT_EQ(machine.node(0).wake(4098, 1), -EINVAL);
}

// --- What is made of it

// Sends signals to the threads of a test until it ends.
class Interrupter {
 public:
  explicit Interrupter(bool is_on) {
    if (!is_on) return;
    struct sigaction action{};
    action.sa_handler = [](int) {};  // no SA_RESTART
    sigaction(SIGUSR1, &action, nullptr);
    thread_ = std::thread([this] {
      std::mt19937 random(3);
      while (!stop_.load()) {
        {
          const std::lock_guard lock(guard_);
          if (!threads_.empty()) pthread_kill(threads_[random() % threads_.size()], SIGUSR1);
        }
        std::this_thread::sleep_for(20us);
      }
    });
  }
  ~Interrupter() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  void add() {
    const std::lock_guard lock(guard_);
    threads_.push_back(pthread_self());
  }
  void remove() {
    const std::lock_guard lock(guard_);
    std::erase(threads_, pthread_self());
  }

 private:
  std::mutex guard_;
  std::vector<pthread_t> threads_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void work(FutexMachine& machine, unsigned threads_per_node, unsigned rounds, const Manner& manner) {
  FutexWords words;
  FutexTally tally;
  const unsigned all = machine.nodes() * threads_per_node;
  Interrupter interrupter(manner.is_interrupted);
  machine.run(threads_per_node, [&](Futexes& futexes, unsigned i) {
    interrupter.add();
    count_and_meet(futexes, words, tally, all, i, rounds, manner);
    interrupter.remove();
  });
  expect_exact(words, tally, all, rounds);
}

constexpr std::array kManners{Manner{"Plain"}, Manner{"TimedOut", true}, Manner{"Interrupted", false, true},
                              Manner{"TimedOutAndInterrupted", true, true}};

class FutexWork : public ::testing::TestWithParam<Manner> {};

TEST_P(FutexWork, OverQueues) {
  FutexMachine machine(loopback(3), WaitPolicy{2000}, NodeId(1));
  work(machine, 3, 60, GetParam());
}
TEST_P(FutexWork, OverSharedMemoryAndSleepsAtOnce) {
  const ShmJob job(3);
  FutexMachine machine(attach_all(job, 3), WaitPolicy{0});
  work(machine, 2, 60, GetParam());
}
TEST_P(FutexWork, OverSharedMemoryAndPolls) {
  const ShmJob job(2);
  FutexMachine machine(attach_all(job, 2), WaitPolicy{20'000});
  work(machine, 2, 60, GetParam());
}
TEST_P(FutexWork, ManyMoreThreadsThanCores) {
  const ShmJob job(4);
  FutexMachine machine(attach_all(job, 4), WaitPolicy{2000});
  work(machine, 8, 10, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Futex, FutexWork, ::testing::ValuesIn(kManners),
                         [](const auto& tested) { return std::string(tested.param.name); });

// A wake of all waiters returns how many there were.
TEST(Futexes, AThousandWaitersAreWoken) {
  constexpr unsigned kWaiters = 250;
  FutexMachine machine(loopback(4), WaitPolicy{0});
  std::array<std::atomic<uint32_t>, 8> words{};
  std::atomic<unsigned> woken{0};
  std::thread waker([&] {
    FutexThread thread(machine.node(3), kManners[0], 0);
    long sum = 0;
    while (sum < 4 * kWaiters)
      for (std::atomic<uint32_t>& word : words) sum += thread.wake(word, INT_MAX);
    EXPECT_EQ(sum, 4 * kWaiters);
  });
  machine.run(kWaiters, [&](Futexes& futexes, unsigned i) {
    FutexThread thread(futexes, kManners[0], i);
    woken += thread.wait(words[i % words.size()], 0) == 0;
  });
  waker.join();
  EXPECT_EQ(woken.load(), 4 * kWaiters);
}

}  // namespace
}  // namespace multigrain::testing
