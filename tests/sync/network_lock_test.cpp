// These test locks in the network under real threads: several nodes in one process, with a toy memory under lazy
// release consistency, so that a missing release or a missing acquire shows as a lost update.
#include "sync/network_lock.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "loopback_fabric.h"
#include "sync/sync.h"
#include "sync/words.h"

namespace multigrain::testing {
namespace {

// Every node has its own copy of every cell. A release writes home what the node has written, and logs it. An acquire
// refreshes what the logs name, up to where the other node knows them. One mutex guards all of it.
class LazyMemory {
 public:
  static constexpr size_t kCells = 64;

  explicit LazyMemory(unsigned nodes) : nodes_(nodes), known_(nodes, std::vector<size_t>(nodes)), logs_(nodes) {}

  uint64_t read(unsigned node, size_t cell) {
    const std::lock_guard hold(guard_);
    return nodes_[node].value[cell];
  }
  void write(unsigned node, size_t cell, uint64_t value) {
    const std::lock_guard hold(guard_);
    nodes_[node].value[cell] = value;
    nodes_[node].dirty.insert(cell);
  }
  void release(unsigned node) {
    const std::lock_guard hold(guard_);
    for (const size_t cell : nodes_[node].dirty) {
      home_[cell] = nodes_[node].value[cell];
      logs_[node].push_back(cell);
    }
    nodes_[node].dirty.clear();
    known_[node][node] = logs_[node].size();
  }
  void acquire(unsigned node, unsigned from) {
    const std::lock_guard hold(guard_);
    for (unsigned writer = 0; writer < logs_.size(); ++writer) {
      size_t& known = known_[node][writer];
      for (; writer != node && known < known_[from][writer]; ++known)
        if (!nodes_[node].dirty.contains(logs_[writer][known]))
          nodes_[node].value[logs_[writer][known]] = home_[logs_[writer][known]];
    }
  }

 private:
  struct Node {
    std::array<uint64_t, kCells> value{};
    std::set<size_t> dirty;
  };
  std::mutex guard_;
  std::vector<Node> nodes_;
  std::array<uint64_t, kCells> home_{};
  std::vector<std::vector<size_t>> known_;
  std::vector<std::vector<size_t>> logs_;
};

class LazyHost final : public SyncHost {
 public:
  LazyHost(LazyMemory& memory, unsigned node, unsigned nodes, WaitPolicy policy)
      : memory_(memory), node_(node), nodes_(nodes), policy_(policy) {}
  void release() override { memory_.release(node_); }
  void acquire(NodeId from) override { memory_.acquire(node_, from.value); }
  void acquire_all() override {
    for (unsigned n = 0; n < nodes_; ++n) memory_.acquire(node_, n);
  }
  [[nodiscard]] const WaitPolicy& wait_policy() const override { return policy_; }
  void enter(SyncActivity) override { ++depth_; }
  void leave() override { --depth_; }
  [[nodiscard]] int depth() const { return depth_; }

 private:
  LazyMemory& memory_;
  unsigned node_;
  unsigned nodes_;
  WaitPolicy policy_;
  std::atomic<int> depth_{0};
};

constexpr WaitPolicy kHardlyPolls{200};
constexpr WaitPolicy kPollsLong{uint64_t{1} << 40};

struct Machine {
  Machine(unsigned nodes, unsigned processors, SyncOptions options, WaitPolicy policy = kHardlyPolls)
      : memory(nodes), processors_(processors) {
    options.network_locks = true;
    fabric = LoopbackFabric::machine(nodes);
    for (unsigned n = 0; n < nodes; ++n) {
      host.push_back(std::make_unique<LazyHost>(memory, n, nodes, policy));
      sync.push_back(std::make_unique<Sync>(*host[n], *fabric[n], nodes, processors, options));
    }
    for (unsigned n = 0; n < nodes; ++n)
      service_.emplace_back([this, n] {
        while (!stop_.load()) {
          fabric[n]->serve();
          sync[n]->serve();
        }
      });
  }
  ~Machine() {
    stop_ = true;
    for (auto& f : fabric) f->wake_service();
    for (auto& thread : service_) thread.join();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void run(const std::function<void(unsigned, unsigned)>& body) {
    std::vector<std::thread> threads;
    for (unsigned n = 0; n < fabric.size(); ++n)
      for (unsigned i = 0; i < processors_; ++i) threads.emplace_back(body, n, n * processors_ + i);
    for (std::thread& thread : threads) thread.join();
  }
  [[nodiscard]] uint64_t messages() const {
    uint64_t sum = 0;
    for (const auto& f : fabric) sum += f->sent();
    return sum;
  }

  LazyMemory memory;
  std::vector<std::unique_ptr<LoopbackFabric>> fabric;
  std::vector<std::unique_ptr<LazyHost>> host;
  std::vector<std::unique_ptr<Sync>> sync;

 private:
  unsigned processors_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> service_;
};

class NetworkLock : public ::testing::TestWithParam<IntraNodeLock> {
 protected:
  [[nodiscard]] static SyncOptions options(uint16_t handoff_bound = 16) {
    SyncOptions options;
    options.intra_node = GetParam();
    options.handoff_bound = handoff_bound;
    return options;
  }

  // Some processors lock, and the other processors try until they succeed.
  static void count(unsigned nodes, unsigned processors, unsigned rounds, unsigned one_in_tries,
                    uint16_t handoff_bound = 16, DeferredReleases deferred = DeferredReleases::kNever) {
    SyncOptions with = options(handoff_bound);
    with.deferred = deferred;
    Machine machine(nodes, processors, with);
    const SyncId lock = machine.sync[nodes - 1]->lock_create();
    uint64_t plain = 0;  // ThreadSanitizer looks at this; the cells show a race, too
    machine.run([&](unsigned node, unsigned processor) {
      Sync& sync = *machine.sync[node];
      for (unsigned i = 0; i < rounds; ++i) {
        if (one_in_tries != 0 && processor % one_in_tries == 0) {
          while (!sync.trylock(lock)) std::this_thread::yield();
        } else {
          sync.lock(lock);
        }
        ++plain;
        machine.memory.write(node, 7, machine.memory.read(node, 7) + 1);
        sync.unlock(lock);
      }
    });
    const uint64_t total = uint64_t{nodes} * processors * rounds;
    EXPECT_EQ(plain, total);
    uint64_t taken = 0;
    for (unsigned n = 0; n < nodes; ++n) {
      machine.sync[n]->lock(lock);
      EXPECT_EQ(machine.memory.read(n, 7), total);
      machine.sync[n]->unlock(lock);
      const SyncCounters counters = machine.sync[n]->counters();
      taken += counters.lock_waits;
      EXPECT_EQ(machine.host[n]->depth(), 0);
    }
    EXPECT_LE(taken, total + nodes);
  }
};

TEST_P(NetworkLock, Counts) {
  count(1, 3, 2000, 0);
  count(2, 1, 2000, 0);
  count(4, 2, 500, 0);
  count(3, 4, 300, 0, 1);
  count(4, 8, 100, 0);
}

TEST_P(NetworkLock, CountsWithTries) {
  count(3, 1, 1000, 1);
  count(4, 2, 300, 1);
  count(4, 2, 300, 2);
  count(6, 2, 100, 3);
  count(3, 4, 100, 2, 1);
}

TEST_P(NetworkLock, WhatIsFreeCostsTwoRemoteAtomicsAndWhatIsHereNone) {
  Machine machine(3, 1, options());
  const SyncId lock = machine.sync[2]->lock_create();  // node 2 manages it
  const auto cost = [&](unsigned node) {
    const uint64_t before = machine.fabric[node]->remote_atomics();
    machine.sync[node]->lock(lock);
    const uint64_t after = machine.fabric[node]->remote_atomics();
    machine.sync[node]->unlock(lock);
    EXPECT_EQ(machine.fabric[node]->remote_atomics(), after) << "an unlock that nobody waits for is local";
    return after - before;
  };
  EXPECT_EQ(cost(0), 1u) << "the first ever finds nobody before it";
  EXPECT_EQ(cost(1), 2u);
  EXPECT_EQ(cost(0), 2u);
  EXPECT_EQ(cost(0), 0u);
  EXPECT_EQ(cost(2), 1u) << "at its manager";
  EXPECT_EQ(machine.messages(), 0u);
}

TEST_P(NetworkLock, AHandOverCostsTheHolderOneAndSendsNoMessageToAPollingWaiter) {
  Machine machine(2, 1, options(), kPollsLong);
  const SyncId lock = machine.sync[0]->lock_create();
  machine.sync[0]->lock(lock);
  std::thread other([&] {
    machine.sync[1]->lock(lock);
    machine.sync[1]->unlock(lock);
  });
  while (machine.fabric[1]->remote_atomics() != 2) std::this_thread::yield();
  machine.sync[0]->unlock(lock);
  other.join();
  EXPECT_EQ(machine.fabric[0]->remote_atomics(), 1u);
  EXPECT_EQ(machine.fabric[1]->remote_atomics(), 2u);
  EXPECT_EQ(machine.messages(), 0u);
  EXPECT_EQ(machine.sync[1]->counters().lock_waits, 1u);
}

TEST_P(NetworkLock, ASleeperIsWokenByOneNotification) {
  Machine machine(2, 1, options());
  const SyncId lock = machine.sync[0]->lock_create();
  machine.sync[0]->lock(lock);
  std::thread other([&] {
    machine.sync[1]->lock(lock);
    machine.sync[1]->unlock(lock);
  });
  // The node has asked, and has said that it will sleep.
  const auto number = uint64_t{0};
  while ((machine.fabric[1]->load_own(SegmentId::kWords, words::kLocks + number + 8) & NetworkLocks::kSleeps) == 0)
    std::this_thread::yield();
  machine.sync[0]->unlock(lock);
  other.join();
  EXPECT_EQ(machine.messages(), 1u);
  EXPECT_EQ(machine.sync[0]->counters().lock_wakes, 1u);
}

TEST_P(NetworkLock, OneTryTakesWhatIsFreeOnAnotherNode) {
  constexpr unsigned kLocks = 200;
  Machine machine(3, 1, options());
  std::vector<SyncId> locks;
  for (unsigned i = 0; i < kLocks; ++i) locks.push_back(machine.sync[i % 3]->lock_create());
  for (unsigned round = 0; round < 6; ++round) {
    Sync& user = *machine.sync[(round * 2 + round / 3) % 3];
    for (const SyncId lock : locks) {
      ASSERT_TRUE(user.trylock(lock)) << "round " << round;
      EXPECT_FALSE(user.trylock(lock));
      user.unlock(lock);
    }
  }
}

TEST_P(NetworkLock, OneOfManyTriesSucceeds) {
  Machine machine(3, 2, options());
  constexpr unsigned kRounds = 100;
  std::vector<SyncId> locks;
  for (unsigned i = 0; i < kRounds; ++i) locks.push_back(machine.sync[i % 3]->lock_create());
  const SyncId barrier = machine.sync[0]->barrier_create(0);
  std::vector<std::atomic<unsigned>> taken(kRounds);
  machine.run([&](unsigned node, unsigned) {
    Sync& sync = *machine.sync[node];
    for (unsigned i = 0; i < kRounds; ++i) {
      sync.barrier(barrier);
      const bool mine = sync.trylock(locks[i]);
      if (mine) ++taken[i];
      sync.barrier(barrier);
      if (mine) sync.unlock(locks[i]);
    }
  });
  for (unsigned i = 0; i < kRounds; ++i) EXPECT_EQ(taken[i].load(), 1u) << "round " << i;
}

TEST_P(NetworkLock, CountsWithDeferredReleases) {
  for (const DeferredReleases deferred : {DeferredReleases::kAlways, DeferredReleases::kLearned}) {
    count(2, 1, 2000, 0, 16, deferred);
    count(4, 2, 300, 0, 16, deferred);
    count(3, 4, 200, 0, 1, deferred);
    count(3, 1, 500, 1, 16, deferred);
    count(4, 2, 200, 2, 16, deferred);
  }
}

class DeferredRelease : public NetworkLock {
 protected:
  [[nodiscard]] static SyncOptions always() {
    SyncOptions with = options();
    with.deferred = DeferredReleases::kAlways;
    return with;
  }
  static void add_one(Machine& machine, unsigned node, SyncId lock) {
    machine.sync[node]->lock(lock);
    machine.memory.write(node, 3, machine.memory.read(node, 3) + 1);
    machine.sync[node]->unlock(lock);
  }
};

TEST_P(DeferredRelease, IsMadeWhenANodeAsksAProcessorThatDoesNothing) {
  Machine machine(2, 1, always());
  const SyncId lock = machine.sync[0]->lock_create();
  for (int i = 0; i < 10; ++i) add_one(machine, 0, lock);
  EXPECT_EQ(machine.messages(), 0u);
  EXPECT_EQ(machine.sync[0]->counters().deferred, 10u);
  machine.sync[1]->lock(lock);
  EXPECT_EQ(machine.memory.read(1, 3), 10u);
  machine.sync[1]->unlock(lock);
  EXPECT_EQ(machine.sync[1]->counters().lock_asked, 1u);
}

TEST_P(DeferredRelease, IsMadeByAProcessorThatSynchronises) {
  Machine machine(2, 1, always(), kPollsLong);
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId other = machine.sync[0]->lock_create();
  add_one(machine, 0, lock);
  std::atomic<bool> has_it = false;
  std::thread asks([&] {
    add_one(machine, 1, lock);
    has_it = true;
  });
  while (!has_it) {
    machine.sync[0]->lock(other);
    machine.sync[0]->unlock(other);
  }
  asks.join();
  EXPECT_EQ(machine.messages(), 0u) << "a node that polls long asks by a word";
  EXPECT_EQ(machine.memory.read(1, 3), 2u);
}

TEST_P(DeferredRelease, IsMadeBeforeABarrier) {
  Machine machine(2, 1, always(), kPollsLong);
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId barrier = machine.sync[0]->barrier_create(0);
  std::array<uint64_t, 2> seen{};
  uint64_t atomics = 0;
  machine.run([&](unsigned node, unsigned) {
    if (node == 0) add_one(machine, 0, lock);
    machine.sync[node]->barrier(barrier);
    seen[node] = machine.memory.read(node, 3);
    machine.sync[node]->barrier(barrier);
    if (node == 0) return;
    const uint64_t before = machine.fabric[1]->remote_atomics();
    machine.sync[1]->lock(lock);
    atomics = machine.fabric[1]->remote_atomics() - before;
    machine.sync[1]->unlock(lock);
  });
  EXPECT_EQ(seen[0], 1u);
  EXPECT_EQ(seen[1], 1u);
  EXPECT_EQ(atomics, 2u) << "after the barrier the lock is free";
}

TEST_P(DeferredRelease, IsWaitedForByATry) {
  for (const WaitPolicy policy : {kHardlyPolls, kPollsLong}) {
    Machine machine(3, 1, always(), policy);
    const SyncId lock = machine.sync[0]->lock_create();
    for (unsigned round = 0; round < 30; ++round) {
      add_one(machine, 0, lock);
      std::thread computes_or_synchronises([&] {
        if (policy.spin_ticks == kPollsLong.spin_ticks) machine.sync[0]->let_go_deferred();
      });
      ASSERT_TRUE(machine.sync[1 + round % 2]->trylock(lock)) << "round " << round;
      EXPECT_EQ(machine.memory.read(1 + round % 2, 3), round + 1);
      EXPECT_FALSE(machine.sync[0]->trylock(lock));
      machine.sync[1 + round % 2]->unlock(lock);
      computes_or_synchronises.join();
      machine.sync[1 + round % 2]->let_go_deferred();
    }
  }
}

TEST_P(DeferredRelease, LetsATryFailWhoseLockAProcessorOfThatNodeHolds) {
  Machine machine(2, 2, always());
  const SyncId lock = machine.sync[0]->lock_create();
  add_one(machine, 0, lock);
  machine.sync[0]->lock(lock);
  EXPECT_FALSE(machine.sync[1]->trylock(lock));
  machine.sync[0]->unlock(lock);
  EXPECT_TRUE(machine.sync[1]->trylock(lock));
  machine.sync[1]->unlock(lock);
}

// Locks whose release is deferred wait for each other's nodes.
TEST_P(DeferredRelease, OfManyLocksIsMadeAtBothNodesAtOnce) {
  Machine machine(2, 2, always());
  std::vector<SyncId> locks;
  for (unsigned i = 0; i < 50; ++i) locks.push_back(machine.sync[i % 2]->lock_create());
  machine.run([&](unsigned node, unsigned processor) {
    for (unsigned i = 0; i < 2000; ++i) {
      const size_t which = (i * 7 + processor * 13) % locks.size();
      machine.sync[node]->lock(locks[which]);
      machine.memory.write(node, which, machine.memory.read(node, which) + 1);
      machine.sync[node]->unlock(locks[which]);
    }
  });
  uint64_t sum = 0;
  for (size_t i = 0; i < locks.size(); ++i) {
    machine.sync[0]->lock(locks[i]);
    sum += machine.memory.read(0, i);
    machine.sync[0]->unlock(locks[i]);
  }
  EXPECT_EQ(sum, 8000u);
}

TEST_P(DeferredRelease, DoesNotKeepALockFromBeingDestroyed) {
  SyncOptions few = always();
  few.max_locks = 4;
  Machine machine(2, 1, few);
  for (unsigned i = 0; i < 300; ++i) {
    const SyncId lock = machine.sync[0]->lock_create();
    machine.sync[1]->lock(lock);
    machine.memory.write(1, i % LazyMemory::kCells, i);
    machine.sync[1]->unlock(lock);
    if (i % 3 == 0) {
      machine.sync[0]->lock(lock);
      EXPECT_EQ(machine.memory.read(0, i % LazyMemory::kCells), i);
      machine.sync[0]->unlock(lock);
    }
    machine.sync[0]->lock_destroy(lock);
  }
}

TEST(DeferralHistory, FollowsHowOftenTheLockIsTakenInOneStay) {
  DeferralHistory alternates;
  DeferralHistory stays;
  for (int i = 0; i < 20; ++i) {
    alternates.taken_from_elsewhere();
    EXPECT_FALSE(alternates.pays());
    stays.taken_from_elsewhere();
    EXPECT_EQ(stays.pays(), i >= 1);
    for (int k = 0; k < 6; ++k) stays.taken_here();
    EXPECT_TRUE(stays.pays());
  }
  // Each time the service thread was needed, more takes are asked for; when it is not, fewer again.
  stays.was_served_late();
  stays.was_served_late();
  stays.taken_from_elsewhere();
  EXPECT_FALSE(stays.pays());
  for (int k = 0; k < 8; ++k) stays.taken_here();
  EXPECT_TRUE(stays.pays());
  for (int k = 0; k < 4; ++k) stays.was_served_soon();
  stays.taken_from_elsewhere();
  EXPECT_TRUE(stays.pays());
}

TEST_P(NetworkLock, HandlesAreUsedAgainWhereverTheLockWasLeft) {
  SyncOptions few = options();
  few.max_locks = 4;
  Machine machine(2, 1, few);
  for (unsigned i = 0; i < 600; ++i) {
    const SyncId lock = machine.sync[0]->lock_create();
    machine.sync[1]->lock(lock);
    machine.sync[1]->unlock(lock);
    if (i % 3 == 0) {
      machine.sync[0]->lock(lock);
      machine.sync[0]->unlock(lock);
    }
    machine.sync[0]->lock_destroy(lock);
  }
}

TEST_P(NetworkLock, MisuseIsNamed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto with_lock = [](const std::function<void(Sync&, SyncId)>& use) {
    Machine machine(1, 1, options());
    use(*machine.sync[0], machine.sync[0]->lock_create());
  };
  EXPECT_DEATH(with_lock([](Sync& sync, SyncId lock) { sync.unlock(lock); }), "mg_unlock: the lock is not held");
  EXPECT_DEATH(with_lock([](Sync& sync, SyncId lock) {
                 sync.lock_destroy(lock);
                 sync.lock(lock);
               }),
               "used after mg_lock_destroy");
  EXPECT_DEATH(with_lock([](Sync& sync, SyncId lock) {
                 sync.lock(lock);
                 sync.lock_destroy(lock);
               }),
               "mg_lock_destroy: the lock is held");
}

std::string name_of(const ::testing::TestParamInfo<IntraNodeLock>& test) {
  return test.param == IntraNodeLock::kTicket ? "Ticket" : "TestAndSet";
}

INSTANTIATE_TEST_SUITE_P(, NetworkLock, ::testing::Values(IntraNodeLock::kTicket, IntraNodeLock::kTestAndSet), name_of);
INSTANTIATE_TEST_SUITE_P(, DeferredRelease, ::testing::Values(IntraNodeLock::kTicket, IntraNodeLock::kTestAndSet),
                         name_of);

}  // namespace
}  // namespace multigrain::testing
