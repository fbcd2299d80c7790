// This runs MGS's driver on thousands of random machines, in random orders (mgs_random_programs.h). `explore mgs
// --random SEED 1` replays a seed.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <vector>

#include "mgs_driver_world.h"
#include "mgs_random_programs.h"

namespace multigrain::mgs::explored {
namespace {

constexpr uint64_t kSeeds = 1000;

TEST(MgsRandom, HoldsInEverySample) {
  uint64_t messages = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool one_sided : {false, true}) {
      const auto run = simulate(random_scenario(seed, one_sided), seed);
      messages += one_sided ? 0 : run.messages;
      ASSERT_EQ(run.failure, "") << "to replay: explore mgs --random " << seed << " 1";
    }
  }
  std::printf("%llu seeds: %llu steps of messages\n", static_cast<unsigned long long>(kSeeds),
              static_cast<unsigned long long>(messages));
  // Runs in which nothing is exchanged would prove nothing.
  EXPECT_GT(messages, 50 * kSeeds);
}

TEST(MgsRandom, ASeedIsARunAndAnotherSeedIsAnother) {
  std::set<std::string> logs;
  for (const uint64_t seed : {7, 7, 8}) {
    std::string log;
    ASSERT_EQ(simulate(random_scenario(seed, true), seed, &log).failure, "");
    logs.insert(log);
  }
  EXPECT_EQ(logs.size(), 2u);
}

// Returns the mutants that random runs refute. kUpgradeBehindRelease is not among them: no seed of these runs refutes
// it.
std::vector<Mutant> mutants_found() {
  std::vector<Mutant> all;
  for (unsigned i = 1; i < static_cast<unsigned>(Mutant::kCount); ++i)
    if (const auto mutant = static_cast<Mutant>(i); mutant != Mutant::kUpgradeBehindRelease) all.push_back(mutant);
  return all;
}

class MgsRandomMutants : public testing::TestWithParam<Mutant> {};

TEST_P(MgsRandomMutants, SomeSeedRefutes) {
  const Mutant mutant = GetParam();
  uint64_t seed = 0;
  std::string failure;
  while (failure.empty() && seed < kSeeds) {
    ++seed;
    failure = simulate(random_scenario(seed, false, mutant), seed).failure;
    if (failure.empty()) failure = simulate(random_scenario(seed, true, mutant), seed).failure;
  }
  EXPECT_NE(failure, "") << "no seed noticed: " << name(mutant);
  std::printf("%s | seed %llu | %s\n", name(mutant), static_cast<unsigned long long>(seed), failure.c_str());
}

INSTANTIATE_TEST_SUITE_P(Mgs, MgsRandomMutants, testing::ValuesIn(mutants_found()));

}  // namespace
}  // namespace multigrain::mgs::explored
