// These test futexes of nodes as they are in a run: forked processes that share words, and nothing else but the fabric.
//
// Every child kills itself after a minute, so that a lost wake-up is a failed test and not a test that hangs.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <new>
#include <vector>

#include "../fabric/shm_job.h"
#include "futex_machine.h"
#include "futex_thread.h"

namespace multigrain::testing {
namespace {

constexpr unsigned kThreads = 3;
constexpr unsigned kRounds = 60;

struct Shared {
  FutexWords words;
  FutexTally tally;
  std::atomic<unsigned> started{0};
  std::atomic<unsigned> ended{0};
};

// Returns when all nodes have come here.
void meet(std::atomic<unsigned>& counter, unsigned nodes) {
  counter.fetch_add(1);
  while (counter.load() < nodes) std::this_thread::yield();
}

void run(unsigned nodes, WaitPolicy policy, const Manner& manner) {
  const ShmJob job(nodes);
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *new (memory) Shared;
  std::vector<pid_t> children;
  for (unsigned n = 0; n < nodes; ++n) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    auto fabric = ShmFabric::attach(job.job_fd(), NodeId(static_cast<uint16_t>(n)), job.frames(), 0);
    if (!fabric) _exit(2);
    std::vector<std::unique_ptr<Fabric>> own;
    own.push_back(std::move(*fabric));
    {
      FutexMachine node(std::move(own), policy);
      meet(shared.started, nodes);
      node.run(kThreads, [&](Futexes& futexes, unsigned i) {
        count_and_meet(futexes, shared.words, shared.tally, nodes * kThreads, n * kThreads + i, kRounds, manner);
      });
      meet(shared.ended, nodes);
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  expect_exact(shared.words, shared.tally, nodes * kThreads, kRounds);
  munmap(memory, sizeof(Shared));
}

TEST(FutexProcesses, SleepAtOnce) {
  run(2, WaitPolicy{0}, {"Plain"});
}
TEST(FutexProcesses, Poll) {
  run(3, WaitPolicy{20'000}, {"Plain"});
}
TEST(FutexProcesses, TimedOut) {
  run(3, WaitPolicy{2000}, {"TimedOut", true});
}
TEST(FutexProcesses, TimedOutAndInterrupted) {
  run(2, WaitPolicy{0}, {"TimedOutAndInterrupted", true, true});
}

}  // namespace
}  // namespace multigrain::testing
