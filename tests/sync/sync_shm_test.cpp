// These test the synchronisation shell over the fabric that ships, with all nodes in this process. They cover what the
// loopback fabric leaves out: bounded queues, and sleeping and waking (a processor that polls takes the messages from
// the service thread).
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "../fabric/shm_job.h"
#include "machine.h"

namespace multigrain::testing {
namespace {

std::vector<std::unique_ptr<Fabric>> attach_all(const ShmJob& job, unsigned nodes) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (unsigned n = 0; n < nodes; ++n) fabrics.push_back(job.attach(n));
  return fabrics;
}

// Processors use everything at once: a locked counter, a semaphore as a lock, barriers, a flag. `policy` decides which
// threads take messages.
void work(unsigned nodes, unsigned processors, unsigned rounds, WaitPolicy policy) {
  const ShmJob job(nodes);
  Machine machine(attach_all(job, nodes), processors, {}, policy);
  const unsigned all = nodes * processors;
  const SyncId lock = machine.sync[0]->lock_create();
  const SyncId sem = machine.sync[nodes - 1]->sem_create(1);
  const SyncId barrier = machine.sync[0]->barrier_create(0);
  const SyncId flag = machine.sync[0]->flag_create();
  std::atomic<unsigned> wrong{0};
  machine.run([&](unsigned node, unsigned processor) {
    Sync& sync = *machine.sync[node];
    ToyMemory& memory = machine.memory;
    for (unsigned i = 1; i <= rounds; ++i) {
      for (unsigned k = 0; k < 4; ++k) {
        sync.lock(lock);
        memory.write(node, 0, memory.read(node, 0) + 1);
        sync.unlock(lock);
      }
      sync.sem_wait(sem);
      memory.write(node, 1, memory.read(node, 1) + 1);
      sync.sem_post(sem);
      sync.barrier(barrier);
      wrong += memory.read(node, 0) != 4u * i * all;
      wrong += memory.read(node, 1) != i * all;
      if (processor == i % all) sync.flag_set(flag, i);
      sync.flag_wait(flag, i);
      sync.barrier(barrier);
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(SyncOverSharedMemory, ProcessorsThatSleepAtOnce) {
  work(2, 2, 60, {0});
}
TEST(SyncOverSharedMemory, ProcessorsThatPoll) {
  work(2, 1, 100, {100'000});
}
TEST(SyncOverSharedMemory, ManyMoreThreadsThanCores) {
  work(4, 4, 15, {2000});
}

// The answer to a try comes from a node none of whose processors looks at its messages.
TEST(SyncOverSharedMemory, OneTryTakesWhatIsFreeOnAnotherNode) {
  constexpr unsigned kNodes = 3;
  constexpr unsigned kLocks = 100;
  for (const WaitPolicy policy : {WaitPolicy{0}, WaitPolicy{100'000}}) {
    const ShmJob job(kNodes);
    Machine machine(attach_all(job, kNodes), 1, {}, policy);
    std::vector<SyncId> locks;
    for (unsigned i = 0; i < kLocks; ++i) locks.push_back(machine.sync[i % kNodes]->lock_create());
    for (const unsigned node : {1u, 0u, 2u, 0u, 1u}) {
      Sync& user = *machine.sync[node];
      unsigned taken = 0;
      for (const SyncId lock : locks) {
        if (!user.trylock(lock)) continue;
        ++taken;
        user.unlock(lock);
      }
      EXPECT_EQ(taken, kLocks) << "node " << node;
    }
  }
}

}  // namespace
}  // namespace multigrain::testing
