// These tests run the synchronisation shell under real threads: several nodes in one process, over the loopback fabric,
// with a toy memory that shows a missing release as a lost update. The tests of the engines try every order of
// messages.
#include "sync/sync.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>
#include <vector>

#include "machine.h"
#include "sync/messages.h"

namespace multigrain::testing {
namespace {

#if defined(__SANITIZE_THREAD__)
#define MULTIGRAIN_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MULTIGRAIN_TSAN 1
#endif
#endif
#ifdef MULTIGRAIN_TSAN
constexpr unsigned kScale = 1;
#else
constexpr unsigned kScale = 8;
#endif

// If two processors had the lock at once, ThreadSanitizer would report a data race on this. The cells show it, too.
struct Plain {
  uint64_t value = 0;
};

void count_under_a_lock(unsigned nodes, unsigned processors, unsigned rounds, SyncOptions options = {}) {
  Machine machine(nodes, processors, options);
  const SyncId lock = machine.sync[nodes - 1]->lock_create();
  Plain plain;
  machine.run([&](unsigned node, unsigned) {
    Sync& sync = *machine.sync[node];
    for (unsigned i = 0; i < rounds; ++i) {
      sync.lock(lock);
      ++plain.value;
      machine.memory.write(node, 7, machine.memory.read(node, 7) + 1);
      // The processor that had the lock before has published its writes, also if the lock has not left the node.
      ASSERT_EQ(machine.host[node]->unsettled(), 0u);
      machine.host[node]->write_own();
      sync.unlock(lock);
    }
  });
  const uint64_t total = uint64_t{nodes} * processors * rounds;
  EXPECT_EQ(plain.value, total);
  uint64_t taken = 0;
  for (unsigned n = 0; n < nodes; ++n) {
    machine.sync[n]->lock(lock);
    EXPECT_EQ(machine.memory.read(n, 7), total);
    machine.sync[n]->unlock(lock);
    const SyncCounters counters = machine.sync[n]->counters();
    taken += counters.lock_local + counters.lock_remote;
    EXPECT_EQ(machine.host[n]->depth(), 0);
  }
  EXPECT_EQ(taken, total + nodes);
}

TEST(Lock, CountsOnOneNode) {
  count_under_a_lock(1, 3, 1000 * kScale);
}
TEST(Lock, CountsOnTwoNodes) {
  count_under_a_lock(2, 1, 500 * kScale);
}
TEST(Lock, CountsOnFourNodesOfTwo) {
  count_under_a_lock(4, 2, 200 * kScale);
}
TEST(Lock, CountsWithASmallBound) {
  SyncOptions options;
  options.handoff_bound = 1;
  count_under_a_lock(3, 4, 100 * kScale, options);
}
TEST(Lock, CountsWithAReleaseBeforeEachHandOn) {
  SyncOptions options;
  options.hands_on_dirty = false;
  count_under_a_lock(2, 4, 500 * kScale, options);
}

// Each unlock releases, whether the lock leaves the node or not.
TEST(Lock, IsHandedOnCleanIfAskedTo) {
  constexpr unsigned kProcessors = 4, kRounds = 200;
  for (const bool dirty : {false, true}) {
    SyncOptions options;
    options.hands_on_dirty = dirty;
    Machine machine(1, kProcessors, options);
    const SyncId lock = machine.sync[0]->lock_create();
    std::atomic<unsigned> arrived{0};
    machine.run([&](unsigned node, unsigned) {
      ++arrived;
      while (arrived != kProcessors) std::this_thread::yield();
      for (unsigned i = 0; i < kRounds; ++i) {
        machine.sync[node]->lock(lock);
        std::this_thread::yield();
        machine.sync[node]->unlock(lock);
      }
    });
    const uint64_t releases = machine.host[0]->releases();
    const SyncCounters counters = machine.sync[0]->counters();
    EXPECT_GT(counters.hand_ons, 0u);
    if (dirty)
      EXPECT_LT(releases, uint64_t{kProcessors} * kRounds);
    else
      EXPECT_EQ(releases, uint64_t{kProcessors} * kRounds);
  }
}

TEST(Lock, CountsWithManyMoreThreadsThanCores) {
  count_under_a_lock(4, 8, 50 * kScale);
}

TEST(Lock, OneNodeSendsNothing) {
  Machine machine(1, 2);
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId barrier = machine.sync[0]->barrier_create(0);
  const SyncId pair = machine.sync[0]->barrier_create(1);
  const SyncId sem = machine.sync[0]->sem_create(1);
  machine.run([&](unsigned, unsigned) {
    Sync& sync = *machine.sync[0];
    sync.lock(lock);
    sync.unlock(lock);
    sync.barrier(barrier);
    sync.barrier(pair);
    sync.sem_wait(sem);
    sync.sem_post(sem);
  });
  EXPECT_EQ(machine.messages(), 0u);
}

TEST(Lock, CachedOnTheNodeThatUsedItLast) {
  Machine machine(2, 1);
  const SyncId lock = machine.sync[0]->lock_create();
  Sync& user = *machine.sync[1];
  user.lock(lock);
  user.unlock(lock);
  const uint64_t messages = machine.messages();
  for (int i = 0; i < 100; ++i) {
    user.lock(lock);
    user.unlock(lock);
  }
  EXPECT_EQ(machine.messages(), messages);
  EXPECT_EQ(user.counters().lock_remote, 1u);
  EXPECT_EQ(user.counters().lock_local, 100u);
  EXPECT_EQ(machine.sync[0]->counters().tokens_sent, 1u);
}

TEST(Lock, AThousandAtOnce) {
  constexpr unsigned kLocks = 1000;
  constexpr unsigned kRounds = 400 * kScale;
  Machine machine(3, 2);
  std::vector<SyncId> locks;
  for (unsigned i = 0; i < kLocks; ++i) locks.push_back(machine.sync[i % 3]->lock_create());
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    for (unsigned i = 0; i < kRounds; ++i) {
      const unsigned which = (i * 37 + processor * 11) % kLocks;
      sync.lock(locks[which]);
      machine.memory.write(node, which, machine.memory.read(node, which) + 1);
      sync.unlock(locks[which]);
    }
  });
  uint64_t sum = 0;
  for (unsigned i = 0; i < kLocks; ++i) {
    machine.sync[0]->lock(locks[i]);
    sum += machine.memory.read(0, i);
    machine.sync[0]->unlock(locks[i]);
  }
  EXPECT_EQ(sum, 6u * kRounds);
}

TEST(Lock, AMillionCanBeCreated) {
  Machine machine(2, 1);
  SyncId last;
  for (int i = 0; i < 1'000'000; ++i) last = machine.sync[0]->lock_create();
  machine.sync[1]->lock(last);
  machine.sync[1]->unlock(last);
}

TEST(Lock, TryFetchesTheTokenInTheEnd) {
  Machine machine(2, 1);
  const SyncId lock = machine.sync[0]->lock_create();  // the lock's token is on node 0
  Sync& here = *machine.sync[0];
  Sync& there = *machine.sync[1];
  here.lock(lock);
  EXPECT_FALSE(there.trylock(lock));
  EXPECT_FALSE(here.trylock(lock));
  here.unlock(lock);
  while (!there.trylock(lock)) std::this_thread::yield();
  EXPECT_FALSE(there.trylock(lock));
  there.unlock(lock);
  EXPECT_TRUE(there.trylock(lock));
  there.unlock(lock);
}

// A processor that tries once may expect to succeed if no processor has the lock, wherever its token is.
TEST(Lock, OneTryTakesWhatIsFreeOnAnotherNode) {
  constexpr unsigned kLocks = 200;
  Machine machine(3, 1);
  std::vector<SyncId> locks;
  for (unsigned i = 0; i < kLocks; ++i) locks.push_back(machine.sync[i % 3]->lock_create());
  for (unsigned round = 0; round < 6; ++round) {
    // The users go from node to node: managers, creators and other nodes, in turn.
    Sync& user = *machine.sync[(round * 2 + round / 3) % 3];
    unsigned taken = 0;
    for (const SyncId lock : locks) {
      if (!user.trylock(lock)) continue;
      ++taken;
      EXPECT_FALSE(user.trylock(lock));
      user.unlock(lock);
    }
    EXPECT_EQ(taken, kLocks) << "round " << round;
  }
  for (unsigned n = 0; n < 3; ++n) EXPECT_EQ(machine.host[n]->depth(), 0);
}

TEST(Lock, AHolderThatSleepsDelaysNoTry) {
  Machine machine(3, 2);
  const SyncId lock = machine.sync[2]->lock_create();
  const SyncId barrier = machine.sync[0]->barrier_create(0);
  std::atomic<unsigned> wrong{0};
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    for (unsigned i = 0; i < 20 * kScale; ++i) {
      const unsigned holder = i % 6;
      if (processor == holder) sync.lock(lock);
      sync.barrier(barrier);
      // The holder gives the lock up only when every try has returned. If a try waited for the lock, the test would
      // hang.
      if (processor != holder) wrong += sync.trylock(lock);
      sync.barrier(barrier);
      if (processor == holder) sync.unlock(lock);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

// Of several tries at a free lock one succeeds. The processor that succeeds unlocks only when all tries have returned,
// so no second one can succeed after it.
TEST(Lock, OneOfManyTriesSucceeds) {
  Machine machine(3, 2);
  constexpr unsigned kRounds = 40 * kScale;
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

TEST(Lock, TriesAndLocksExclude) {
  Machine machine(3, 2);
  const SyncId lock = machine.sync[1]->lock_create();
  Plain plain;
  std::atomic<uint64_t> taken{0};
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    for (unsigned i = 0; i < 200 * kScale; ++i) {
      if (processor % 2 == 0) {
        sync.lock(lock);
      } else if (!sync.trylock(lock)) {
        continue;
      }
      ++plain.value;
      taken.fetch_add(1, std::memory_order_relaxed);
      sync.unlock(lock);
    }
  });
  EXPECT_EQ(plain.value, taken.load());
}

TEST(Handles, AreUsedAgain) {
  SyncOptions options;
  options.max_locks = 4;
  options.max_others = 4;
  Machine machine(2, 1, options);
  std::set<uint64_t> seen;
  for (unsigned i = 0; i < 900; ++i) {
    Sync& creator = *machine.sync[0];
    Sync& other = *machine.sync[1];
    const SyncId lock = creator.lock_create();
    EXPECT_NE(lock.value, 0u);
    EXPECT_TRUE(seen.insert(lock.value).second) << "a handle came twice";
    // Leaves the token on either node. The next lock with that index must not depend on that.
    other.lock(lock);
    other.unlock(lock);
    if (i % 3 == 0) {
      creator.lock(lock);
      creator.unlock(lock);
    }
    creator.lock_destroy(lock);
    const SyncId sem = creator.sem_create(i);
    for (unsigned k = 0; k < i % 3 + 1 && i != 0; ++k) EXPECT_EQ(other.sem_trywait(sem), k < i);
    creator.sem_destroy(sem);
  }
}

// Every node knows these by their numbers, and none is given to the program.
TEST(Handles, OfTheRuntimeItself) {
  for (const bool network_locks : {false, true}) {
    SyncOptions options;
    options.max_locks = 4;
    options.max_others = 4;
    options.own_locks = 5;
    options.own_conds = 2;
    options.network_locks = network_locks;
    Machine machine(2, 1, options);
    std::set<uint64_t> seen;
    for (unsigned i = 0; i < options.own_locks; ++i) {
      const SyncId lock = machine.sync[0]->own_lock(i);
      EXPECT_TRUE(seen.insert(lock.value).second);
      EXPECT_EQ(machine.sync[1]->own_lock(i), lock);
      for (const unsigned node : {1, 0, 1}) {
        machine.sync[node]->lock(lock);
        EXPECT_FALSE(machine.sync[1 - node]->trylock(lock));
        machine.sync[node]->unlock(lock);
      }
    }
    // Three of them are node 0's, if they are spread over the nodes, so one is left there.
    EXPECT_TRUE(seen.insert(machine.sync[0]->lock_create().value).second);
    EXPECT_NE(machine.sync[0]->own_cond(0), machine.sync[0]->own_cond(1));
    EXPECT_EQ(machine.sync[0]->own_cond(1), machine.sync[1]->own_cond(1));
    machine.sync[1]->cond_broadcast(machine.sync[1]->own_cond(1));
  }
}

TEST(Handles, GenerationsRunOutAndTheIndexRests) {
  HandleSource source(2);
  HandleSource::Index first;
  ASSERT_TRUE(source.take(first));
  for (unsigned generation = 0; generation < 256; ++generation) {
    EXPECT_EQ(first.generation, generation);
    ASSERT_TRUE(source.give_back(first));
    EXPECT_FALSE(source.give_back(first)) << "given back twice";
    const uint32_t before = first.value;
    ASSERT_TRUE(source.take(first));
    EXPECT_EQ(first.value == before, generation != 255);
  }
  HandleSource::Index second;
  EXPECT_FALSE(source.take(second));
}

TEST(Handles, PackAndUnpack) {
  SyncHandle handle;
  handle.kind = static_cast<uint8_t>(SyncKind::kFlag);
  handle.generation = 255;
  handle.creator = NodeId(63);
  handle.argument = (1u << SyncHandle::kArgumentBits) - 1;
  handle.index = (1u << SyncHandle::kIndexBits) - 1;
  const SyncHandle back = SyncHandle::decode(handle.encode());
  EXPECT_EQ(back.kind, handle.kind);
  EXPECT_EQ(back.generation, handle.generation);
  EXPECT_EQ(back.creator, handle.creator);
  EXPECT_EQ(back.argument, handle.argument);
  EXPECT_EQ(back.index, handle.index);
}

TEST(Handles, MayBeDestroyedByAnotherNode) {
  SyncOptions options;
  options.max_others = 2;
  Machine machine(3, 2, options);
  std::atomic<uint64_t> shared{machine.sync[2]->barrier_create(0).value};
  const SyncId outer = machine.sync[0]->barrier_create(0);
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    for (unsigned i = 0; i < 40; ++i) {
      const SyncId mine(shared.load());
      sync.barrier(mine);
      // Other processors may still be leaving the barrier.
      if (processor == 1) sync.barrier_destroy(mine);
      sync.barrier(outer);
      if (processor == 5) shared.store(sync.barrier_create(0).value);
      sync.barrier(outer);
    }
  });
}

// At each episode every processor writes its cell and reads all cells. A processor that left early, or a flush that was
// missing, shows as an old number. Some processors do more work between episodes, so that they arrive at different
// times.
void check_barrier(unsigned nodes, unsigned processors, unsigned episodes, SyncOptions options = {}) {
  Machine machine(nodes, processors, options);
  const SyncId barrier = machine.sync[0]->barrier_create(nodes * processors);
  std::atomic<unsigned> wrong{0};
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    for (unsigned e = 1; e <= episodes; ++e) {
      if ((e + processor) % 5 == 0) std::this_thread::yield();
      for (unsigned k = 0; k < (e * (processor + 1)) % 7; ++k) cpu_relax();
      machine.memory.write(node, processor, e);
      machine.host[node]->write_own();
      sync.barrier(barrier);
      for (unsigned p = 0; p < nodes * processors; ++p) wrong += machine.memory.read(node, p) != e;
      wrong += machine.host[node]->unsettled();
      sync.barrier(barrier);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(machine.sync[0]->counters().barriers, uint64_t{2} * episodes * processors);
}

TEST(Barrier, OneNode) {
  check_barrier(1, 4, 200 * kScale);
}
TEST(Barrier, TwoNodes) {
  check_barrier(2, 1, 200 * kScale);
}
TEST(Barrier, FourNodesOfTwo) {
  check_barrier(4, 2, 100 * kScale);
}
TEST(Barrier, DeepTree) {
  SyncOptions options;
  options.barrier_radix = 1;
  check_barrier(5, 1, 50 * kScale, options);
}
TEST(Barrier, ManyMoreThreadsThanCores) {
  check_barrier(8, 4, 10 * kScale);
}

TEST(Barrier, CountedPairsThatReturnAtOnce) {
  Machine machine(3, 2);
  const SyncId barrier = machine.sync[0]->barrier_create(5);
  const SyncId all = machine.sync[0]->barrier_create(0);
  constexpr unsigned kEpisodes = 60 * kScale;
  std::atomic<unsigned> wrong{0};
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    if (processor < 5) {
      for (unsigned e = 1; e <= kEpisodes; ++e) {
        machine.memory.write(node, processor, e);
        sync.barrier(barrier);
        for (unsigned p = 0; p < 5; ++p) {
          const uint64_t seen = machine.memory.read(node, p);
          wrong += seen != e && seen != e + 1;  // a fast processor may be one ahead
        }
      }
    }
    sync.barrier(all);
  });
  EXPECT_EQ(wrong.load(), 0u);
}

void produce_and_consume(SyncOptions options) {
  constexpr unsigned kItems = 60 * kScale;
  constexpr uint64_t kRoom = 3;
  constexpr size_t kFilled = 0;
  constexpr size_t kTaken = 1;
  Machine machine(3, 2, options);
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId not_empty = machine.sync[1]->cond_create();
  const SyncId not_full = machine.sync[2]->cond_create();
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    ToyMemory& memory = machine.memory;
    const bool producer = processor % 2 == 0;
    for (unsigned i = 0; i < kItems; ++i) {
      sync.lock(lock);
      if (producer) {
        while (memory.read(node, kFilled) == kRoom) sync.cond_wait(not_full, lock);
        memory.write(node, kFilled, memory.read(node, kFilled) + 1);
        sync.cond_signal(not_empty);
      } else {
        while (memory.read(node, kFilled) == 0) sync.cond_wait(not_empty, lock);
        memory.write(node, kFilled, memory.read(node, kFilled) - 1);
        memory.write(node, kTaken, memory.read(node, kTaken) + 1);
        sync.cond_signal(not_full);
      }
      sync.unlock(lock);
    }
  });
  machine.sync[0]->lock(lock);
  EXPECT_EQ(machine.memory.read(0, kFilled), 0u);
  EXPECT_EQ(machine.memory.read(0, kTaken), 3u * kItems);
  machine.sync[0]->unlock(lock);
}

TEST(Cond, ProducersAndConsumers) {
  produce_and_consume({});
}
// Here a signal is sent only if somebody waits.
TEST(Cond, ProducersAndConsumersWithLocksInTheNetwork) {
  produce_and_consume({.network_locks = true});
}

TEST(Cond, ASignalForNobodySendsAndReleasesNothing) {
  Machine machine(2, 1, {.network_locks = true});
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId conds[] = {machine.sync[0]->cond_create(), machine.sync[1]->cond_create()};
  Sync& sync = *machine.sync[0];
  const uint64_t messages = machine.messages();
  const uint64_t releases = machine.host[0]->releases();
  for (const SyncId cond : conds) {
    sync.cond_signal(cond);
    sync.cond_broadcast(cond);
  }
  EXPECT_EQ(machine.messages(), messages);
  EXPECT_EQ(machine.host[0]->releases(), releases);
  // One that is waited for gets its signals, and is waited for by nobody afterwards.
  for (const SyncId cond : conds) {
    std::atomic<bool> woken{false};
    std::thread waiter([&] {
      machine.sync[1]->lock(lock);
      machine.sync[1]->cond_wait(cond, lock);
      woken = true;
      machine.sync[1]->unlock(lock);
    });
    while (!woken) {
      sync.lock(lock);
      sync.cond_signal(cond);
      sync.unlock(lock);
      std::this_thread::yield();
    }
    waiter.join();
    const uint64_t sent = machine.messages();
    sync.cond_broadcast(cond);
    EXPECT_EQ(machine.messages(), sent);
  }
}

// The manager of the first condition is node 0, where a signal comes by no message; that of the second one node 1.
TEST(CondDeathTest, ASignalForOneThatIsGoneIsRefusedWithLocksInTheNetwork) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto signal_destroyed = [](unsigned creator) {
    Machine machine(2, 1, {.network_locks = true});
    const SyncId cond = machine.sync[creator]->cond_create();
    machine.sync[creator]->cond_destroy(cond);
    machine.sync[0]->cond_signal(cond);
  };
  for (const unsigned creator : {0u, 1u})
    EXPECT_EXIT(signal_destroyed(creator), ::testing::ExitedWithCode(1),
                "used .*after .*destroyed|used after mg_cond_destroy");
  // An index that is used again is a condition like any other.
  Machine machine(2, 1, {.max_others = 1, .network_locks = true});
  const SyncId gone = machine.sync[1]->cond_create();
  machine.sync[1]->cond_destroy(gone);
  const SyncId cond = machine.sync[1]->cond_create();
  machine.sync[0]->cond_signal(cond);
  const uint64_t sent = machine.messages();
  machine.sync[0]->cond_signal(cond);
  EXPECT_EQ(machine.messages(), sent);
}

TEST(Cond, BroadcastWakesAllAndNobodyElse) {
  Machine machine(3, 2);
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId cond = machine.sync[1]->cond_create();
  unsigned waiting = 0;  // the lock guards this
  unsigned woken = 0;
  bool go = false;
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    if (processor != 5) {
      sync.lock(lock);
      ++waiting;
      sync.cond_wait(cond, lock);  // without a loop: there are no spurious wake-ups
      EXPECT_TRUE(go);
      ++woken;
      sync.unlock(lock);
      return;
    }
    for (bool all = false; !all;) {
      sync.lock(lock);
      all = waiting == 5;
      if (all) {
        go = true;
        sync.cond_broadcast(cond);
      }
      sync.unlock(lock);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(woken, 5u);
}

TEST(Sem, BoundedBuffer) {
  constexpr unsigned kItems = 80 * kScale;
  Machine machine(2, 2);
  const SyncId empty = machine.sync[0]->sem_create(2);
  const SyncId full = machine.sync[1]->sem_create(0);
  const SyncId mutex = machine.sync[1]->sem_create(1);
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    ToyMemory& memory = machine.memory;
    for (unsigned i = 0; i < kItems; ++i) {
      sync.sem_wait(processor % 2 == 0 ? empty : full);
      sync.sem_wait(mutex);
      if (processor % 2 == 0) {
        memory.write(node, 0, memory.read(node, 0) + 1);
      } else {
        EXPECT_GT(memory.read(node, 0), 0u);
        memory.write(node, 0, memory.read(node, 0) - 1);
      }
      sync.sem_post(mutex);
      sync.sem_post(processor % 2 == 0 ? full : empty);
    }
  });
  Sync& sync = *machine.sync[0];
  EXPECT_TRUE(sync.sem_trywait(empty));
  EXPECT_TRUE(sync.sem_trywait(empty));
  EXPECT_FALSE(sync.sem_trywait(empty));
  EXPECT_FALSE(sync.sem_trywait(full));
}

TEST(Flag, CarriesWrites) {
  Machine machine(3, 1);
  const SyncId flag = machine.sync[2]->flag_create();
  EXPECT_EQ(machine.sync[0]->flag_get(flag), 0u);
  constexpr uint32_t kRounds = 60 * kScale;
  machine.run([&](unsigned node, unsigned) {
    Sync& sync = *machine.sync[node];
    for (uint32_t i = 0; i < kRounds; ++i) {
      // The flag goes round the ring: node n waits for its turn, reads its predecessor's cell, and writes its own.
      sync.flag_wait(flag, i * 3 + node);
      if (i != 0 || node != 0) {
        EXPECT_EQ(machine.memory.read(node, (node + 2) % 3), i * 3 + node);
      }
      machine.memory.write(node, node, i * 3 + node + 1);
      sync.flag_set(flag, i * 3 + node + 1);
    }
  });
  EXPECT_EQ(machine.sync[1]->flag_get(flag), kRounds * 3);
}

// Misuse is reported with the call's name. There is one node without threads, because death tests fork.
class MisuseDeathTest : public ::testing::Test {
 protected:
  MisuseDeathTest() : fabric_(LoopbackFabric::machine(2)), memory_(2), host_(memory_, 0, WaitPolicy{}) {
    SyncOptions options;
    options.max_locks = 2;
    options.max_others = 2;
    sync_ = std::make_unique<Sync>(host_, *fabric_[0], 2, 1, options);
  }
  std::vector<std::unique_ptr<LoopbackFabric>> fabric_;
  ToyMemory memory_;
  ToyHost host_;
  std::unique_ptr<Sync> sync_;
};

TEST_F(MisuseDeathTest, HandlesThatAreNone) {
  const auto exits = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(sync_->lock(SyncId(0)), exits, "mg_lock: not a lock");
  EXPECT_EXIT(sync_->unlock(SyncId(0)), exits, "mg_unlock: not a lock");
  EXPECT_EXIT((void)sync_->trylock(SyncId(0)), exits, "mg_trylock: not a lock");
  EXPECT_EXIT(sync_->barrier(SyncId(0)), exits, "mg_barrier: not a barrier");
  EXPECT_EXIT(sync_->cond_signal(SyncId(0)), exits, "mg_cond_signal: not a condition");
  EXPECT_EXIT(sync_->sem_wait(SyncId(0)), exits, "mg_sem_wait: not a semaphore");
  EXPECT_EXIT(sync_->flag_set(SyncId(0), 1), exits, "mg_flag_set: not a flag");
  const SyncId lock = sync_->lock_create();
  EXPECT_EXIT(sync_->barrier(lock), exits, "mg_barrier: not a barrier");
  EXPECT_EXIT(sync_->lock(SyncId(lock.value + 2)), exits, "mg_lock: not a lock");
}

TEST_F(MisuseDeathTest, LocksNotHeldOrGone) {
  const auto exits = ::testing::ExitedWithCode(1);
  const SyncId lock = sync_->lock_create();
  const SyncId cond = sync_->cond_create();
  EXPECT_EXIT(sync_->unlock(lock), exits, "mg_unlock: the lock is not held");
  EXPECT_EXIT(sync_->cond_wait(cond, lock), exits, "mg_cond_wait: the lock is not held");
  sync_->lock(lock);
  EXPECT_EXIT(sync_->lock_destroy(lock), exits, "mg_lock_destroy: the lock is held");
  sync_->unlock(lock);
  sync_->lock_destroy(lock);
  EXPECT_EXIT(sync_->lock(lock), exits, "used after mg_lock_destroy");
  EXPECT_EXIT((void)sync_->trylock(lock), exits, "used after mg_lock_destroy");
  EXPECT_EXIT(sync_->unlock(lock), exits, "used after mg_lock_destroy");
  EXPECT_EXIT(sync_->lock_destroy(lock), exits, "destroyed before");
}

TEST_F(MisuseDeathTest, OthersGone) {
  const auto exits = ::testing::ExitedWithCode(1);
  const SyncId sem = sync_->sem_create(0);
  sync_->sem_destroy(sem);
  EXPECT_EXIT(sync_->sem_post(sem), exits, "used after mg_sem_destroy");
  const SyncId flag = sync_->flag_create();
  sync_->flag_destroy(flag);
  EXPECT_EXIT(sync_->flag_set(flag, 1), exits, "used after mg_flag_destroy");
  const SyncId barrier = sync_->barrier_create(1);
  sync_->barrier_destroy(barrier);
  EXPECT_EXIT(sync_->barrier(barrier), exits, "used after mg_barrier_destroy");
}

TEST_F(MisuseDeathTest, Limits) {
  const auto exits = ::testing::ExitedWithCode(1);
  (void)sync_->lock_create();
  (void)sync_->lock_create();
  EXPECT_EXIT((void)sync_->lock_create(), exits, "mg_lock_create: too many locks.* 2");
  EXPECT_EXIT((void)sync_->barrier_create(70000), exits, "mg_barrier_create: the count is above 65535: 70000");
}

// A processor of the other node waits for the answer, and would wait for ever.
TEST_F(MisuseDeathTest, LocksGoneThatAnotherNodeWants) {
  // Node 0 manages the first lock, and gets requests; node 1 manages the second, and forwards them.
  const SyncId locks[] = {sync_->lock_create(), sync_->lock_create()};
  for (const SyncId lock : locks) sync_->lock_destroy(lock);
  MessageHeader header;
  for (const MessageType type : {sync_message::kLockRequest, sync_message::kLockForward}) {
    header.type = type;
    header.word[0] = locks[type == sync_message::kLockForward ? 1 : 0].value;
    header.small = 1;
    const auto deliver = [&] {
      fabric_[1]->send(NodeId(0), header, SendContext::kOrdinary);
      fabric_[0]->poll();
    };
    EXPECT_EXIT(deliver(), ::testing::ExitedWithCode(1), "a lock was destroyed while .* wanted it .* 1");
  }
}

TEST_F(MisuseDeathTest, MessagesThatCannotBe) {
  // Node 0 delivers this to itself by poll(), as if node 1 had sent what no node sends.
  const auto deliver = [&](MessageHeader header) {
    fabric_[1]->send(NodeId(0), header, SendContext::kOrdinary);
    fabric_[0]->poll();
  };
  MessageHeader header;
  header.type = sync_message::kLockToken;  // a token for which no node has asked, of no lock
  EXPECT_DEATH(deliver(header), "cannot be right");
  header.word[0] = sync_->lock_create().value;
  EXPECT_DEATH(deliver(header), "invariant broken");
  header.type = sync_message::kLockBusy;  // an answer to a try that is yet to come
  header.extra = 1;
  EXPECT_DEATH(deliver(header), "invariant broken");
  header.type = sync_message::kAnswer;  // an answer to no call
  header.flags = 2;
  EXPECT_DEATH(deliver(header), "a node that was not asked");
  header.small = 5000;
  EXPECT_DEATH(deliver(header), "a slot that does not exist");

  header = {};
  header.type = sync_message::kLockForward;  // about a lock that the sender does not manage
  header.word[0] = sync_->lock_create().value;
  header.small = 1;
  EXPECT_DEATH(deliver(header), "invariant broken|does not manage it");

  header = {};
  header.type = sync_message::kCall;  // two calls at a time from one slot
  header.flags = static_cast<uint8_t>(ServerCall::kSemWait);
  header.small = 3;
  header.word[0] = sync_->sem_create(0).value;
  deliver(header);
  EXPECT_DEATH(deliver(header), "whose last call is not answered");

  header = {};
  header.type = sync_message::kRecycle;  // about an object that another node created
  header.word[0] = sync_->flag_create().value;
  SyncHandle handle = SyncHandle::decode(SyncId(header.word[0]));
  handle.creator = NodeId(1);
  header.word[0] = handle.encode().value;
  EXPECT_DEATH(deliver(header), "did not create it");

  header = {};
  header.word[0] = sync_->barrier_create(0).value;
  header.type = sync_message::kBarrierDown;  // to the root of the tree
  EXPECT_DEATH(deliver(header), "from the wrong node");
  header.type = sync_message::kBarrierArrive;  // to a barrier that is not counted
  EXPECT_DEATH(deliver(header), "from the wrong node");
}

}  // namespace
}  // namespace multigrain::testing
