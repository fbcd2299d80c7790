// Thousands of random runs of machines of 3 to 16 nodes of 1 to 4 processors. A failure prints the command that replays
// it.
#include "mgs_simulation.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <set>

namespace multigrain::mgs::model {
namespace {

// What is running, should a transition itself stop the process.
uint64_t current_seed = 0;
Shape current_shape;

void print_seed_at_abort(int) {
  std::fprintf(stderr, "a transition stopped the process; to replay: %s\n",
               replay_command(current_seed, current_shape).c_str());
}

struct Totals {
  uint64_t events = 0;
  uint64_t messages = 0;
};

void run_seeds(uint64_t first, uint64_t last) {
  void (*const old)(int) = std::signal(SIGABRT, print_seed_at_abort);
  Totals totals;
  for (uint64_t seed = first; seed <= last; ++seed) {
    current_seed = seed;
    current_shape = random_shape(seed);
    const Run run = simulate(random_scenario(seed, current_shape), seed);
    totals.events += run.events;
    totals.messages += run.messages;
    ASSERT_EQ(run.failure, "") << "to replay: " << replay_command(seed, current_shape);
  }
  std::signal(SIGABRT, old);
  std::printf("seeds %llu to %llu: %llu events, %llu messages\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(last), static_cast<unsigned long long>(totals.events),
              static_cast<unsigned long long>(totals.messages));
  // Runs in which nothing is exchanged would prove nothing.
  EXPECT_GT(totals.messages, 50 * (last - first + 1));
}

TEST(MgsSimulation, Seeds1To1000) {
  run_seeds(1, 1000);
}
TEST(MgsSimulation, Seeds1001To2000) {
  run_seeds(1001, 2000);
}
TEST(MgsSimulation, Seeds2001To3000) {
  run_seeds(2001, 3000);
}

TEST(MgsSimulation, ASeedIsARunAndAnotherSeedIsAnother) {
  std::set<std::string> logs;
  for (const uint64_t seed : {7, 7, 8}) {
    const Shape shape{.nodes = 4, .processors_per_node = 2, .domains = 1, .pages = 3};
    std::string log;
    ASSERT_EQ(simulate(random_scenario(seed, shape), seed, &log).failure, "");
    logs.insert(log);
  }
  EXPECT_EQ(logs.size(), 2u);
}

// The simulation would notice too.
class MgsSimulationOfMutants : public testing::TestWithParam<Mutant> {};

TEST_P(MgsSimulationOfMutants, SomeSeedRefutes) {
  const Shape shape{.nodes = 4, .processors_per_node = 2, .domains = 1, .pages = 2};
  uint64_t seed = 1;
  std::string failure;
  while (failure.empty() && seed <= 3000) {
    failure = simulate(random_scenario(seed, shape, GetParam()), seed).failure;
    ++seed;
  }
  EXPECT_NE(failure, "") << "no seed noticed: " << name(GetParam());
  std::printf("%s: seed %llu, %s\n", name(GetParam()), static_cast<unsigned long long>(seed - 1), failure.c_str());
}

INSTANTIATE_TEST_SUITE_P(Mgs, MgsSimulationOfMutants,
                         testing::Values(Mutant::kForgetQueueEntry, Mutant::kIgnoreOtherReleases,
                                         Mutant::kMergeDiffAtOnce, Mutant::kDiffBeforeUnmap, Mutant::kMapBeforeQueue,
                                         Mutant::kLoseWake, Mutant::kNoTwin));

}  // namespace
}  // namespace multigrain::mgs::model
