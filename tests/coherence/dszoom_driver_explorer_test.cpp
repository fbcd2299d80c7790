// DSZOOM's driver (coherence/dszoom/driver.cpp) on three nodes and two lines, in every order of its remote operations and
// of the accesses of memory that nodes share: dszoom_driver_world.h says what a step is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>

#include "driver_explorer.h"
#include "dszoom_driver_world.h"

namespace multigrain::dszoom::explored {
namespace {

using exploring_driver::Explorer;
using Result = exploring_driver::Result<World>;

Op load(uint8_t line, uint8_t word) {
  return {Access::kLoad, line, word, 0};
}
Op store(uint8_t line, uint8_t word, uint64_t value) {
  return {Access::kStore, line, word, value};
}
Op add(uint8_t line, uint8_t word, uint64_t value) {
  return {Access::kAdd, line, word, value};
}

Op add_to_both(uint8_t word, uint64_t value) {
  return {Access::kAddBoth, 0, word, value};
}
Op add_known(uint8_t line, uint8_t word, uint64_t value) {
  return {Access::kAddKnown, line, word, value};
}

// Processor p is on node p, where nothing else is said.
std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  const auto add_scenario = [&](std::string name, std::array<uint8_t, kLines> homes, std::vector<Program> programs,
                                std::vector<uint8_t> nodes = {0, 1, 2}) {
    all.push_back({std::move(name), homes, std::move(programs), Mutant::kNone, std::move(nodes)});
  };
  add_scenario("two hops", {0, 0}, {{store(0, 0, 1), store(0, 1, 2)}, {load(0, 0), load(0, 1)}});
  add_scenario("three hops", {2, 2}, {{store(0, 0, 1), store(0, 1, 2)}, {load(0, 0), load(0, 1)}});
  add_scenario("ownership goes round", {0, 0}, {{add(0, 0, 1)}, {add(0, 0, 2)}, {add(0, 0, 4)}});
  add_scenario("ownership comes back", {2, 2}, {{add(0, 0, 1), add(0, 0, 1)}, {add(0, 0, 2), add(0, 0, 2)}});
  add_scenario("upgrades race", {2, 2}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), store(0, 0, 2)}});
  add_scenario("upgrades race at the home", {0, 0}, {{load(0, 0), store(0, 0, 1)}, {load(0, 0), store(0, 0, 2)}});
  add_scenario("an upgrade, a reader and a writer", {0, 0},
               {{add(0, 0, 1)}, {load(0, 0), store(0, 0, 2)}, {load(0, 0)}});
  add_scenario("three readers and writers", {0, 0},
               {{load(0, 0), add(0, 0, 1)}, {load(0, 0), add(0, 0, 2)}, {load(0, 0)}});
  add_scenario("false sharing", {2, 2}, {{store(0, 0, 1), load(0, 0)}, {store(0, 1, 2), load(0, 1)}});
  add_scenario("false sharing of three", {0, 0}, {{store(0, 0, 1)}, {store(0, 1, 2), load(0, 0)}, {load(0, 1)}});
  add_scenario("the flag value is stored", {0, 0},
               {{store(0, 0, MG_FINE_FLAG64), load(0, 0)}, {load(0, 0), load(0, 0)}});
  add_scenario("store buffering", {0, 1}, {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  add_scenario("store buffering, homes exchanged", {1, 0},
               {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  add_scenario("store buffering over a third node", {2, 2},
               {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  add_scenario("store buffering from shared copies", {2, 2},
               {{load(1, 0), store(0, 0, 1), load(1, 0)}, {load(0, 0), store(1, 0, 1), load(0, 0)}});
  add_scenario("message passing", {0, 1}, {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  add_scenario("message passing, homes exchanged", {1, 0},
               {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  add_scenario("message passing over a third node", {2, 2},
               {{store(0, 0, 1), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  add_scenario("message passing, an old copy", {0, 1},
               {{store(0, 0, 1), store(1, 0, 1)}, {load(0, 0), load(1, 0), load(0, 0)}});
  add_scenario("load buffering", {1, 0}, {{load(0, 0), store(1, 0, 1)}, {load(1, 0), store(0, 0, 1)}});
  add_scenario("coherence of one word", {2, 2}, {{store(0, 0, 1), store(0, 0, 2)}, {load(0, 0), load(0, 0)}});
  add_scenario("two writers and a reader", {0, 0}, {{store(0, 0, 1)}, {store(0, 0, 2)}, {load(0, 0), load(0, 0)}});
  // Independent reads with three processors: who reads in one order writes what is read second.
  add_scenario("independent reads in small", {1, 0},
               {{store(0, 0, 1)}, {load(0, 0), load(1, 0)}, {store(1, 0, 1), load(0, 0)}});
  add_scenario("write to read", {2, 0}, {{store(0, 0, 1)}, {load(0, 0), store(1, 0, 1)}, {load(1, 0), load(0, 0)}});
  add_scenario("a batch and stores to both lines", {0, 1}, {{add_to_both(0, 1)}, {add(1, 0, 2), add(0, 0, 2)}});
  add_scenario("a batch over a third node's lines", {2, 2}, {{add_to_both(0, 1)}, {add(0, 0, 2), add(1, 0, 2)}});
  add_scenario("two processors of a node read", {1, 1}, {{load(0, 0)}, {load(0, 1)}, {store(0, 0, 1)}}, {0, 0, 1});
  add_scenario("two processors of a node miss on one line", {1, 1}, {{load(0, 0)}, {add(0, 0, 1)}, {add(0, 0, 2)}},
               {0, 0, 1});
  add_scenario("two processors of the home", {0, 0}, {{add(0, 0, 1)}, {load(0, 0)}, {add(0, 0, 2)}}, {0, 0, 1});
  add_scenario("cached: the home adds twice, another once", {0, 0},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {add(0, 0, 2)}});
  add_scenario("cached: the home adds, another reads", {0, 0},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {load(0, 0), load(0, 0)}});
  add_scenario("cached: ownership comes back", {0, 0},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {add_known(0, 0, 2), add_known(0, 0, 2)}});
  add_scenario("cached: three hops", {2, 2},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {add_known(0, 0, 2), add_known(0, 0, 2)}});
  return all;
}

// Minutes.
std::vector<Scenario> long_scenarios() {
  return {
      {"ownership goes round, two lines", {0, 1}, {{add(0, 0, 1)}, {add(0, 0, 2), add(1, 0, 2)}, {add(1, 0, 4)}}},
      {"independent reads in small, homes exchanged",
       {0, 1},
       {{store(0, 0, 1)}, {load(0, 0), load(1, 0)}, {store(1, 0, 1), load(0, 0)}}},
      {"store buffering of three",
       {0, 1},
       {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 1)}, {store(0, 1, 1), load(0, 0)}}},
      {"store buffering of three, over one home",
       {2, 2},
       {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 1)}, {store(0, 1, 1), load(0, 0)}}},
      {"a batch, a writer and a reader", {0, 1}, {{add_to_both(0, 1)}, {store(1, 0, 8)}, {load(0, 0)}}},
      {"three nodes, two processors on one",
       {1, 1},
       {{add(0, 0, 1)}, {load(0, 0)}, {add(0, 0, 2)}, {load(0, 0)}},
       Mutant::kNone,
       {0, 0, 1, 2}},
      {"cached: two requesters for two lines",
       {0, 0},
       {{add_known(0, 0, 1), add_known(0, 0, 1)}, {store(0, 0, 2)}, {store(1, 0, 4)}}},
      {"cached: two requesters of one node",
       {0, 0},
       {{add_known(0, 0, 1), add_known(0, 0, 1)}, {store(0, 0, 2)}, {store(1, 0, 4)}},
       Mutant::kNone,
       {0, 1, 1}},
  };
}

bool has_batch(const Scenario& scenario) {
  return std::ranges::any_of(scenario.programs, [](const Program& program) {
    return std::ranges::any_of(program, [](const Op& op) { return op.access == Access::kAddBoth; });
  });
}

bool caches(const Scenario& scenario) {
  return std::ranges::any_of(scenario.programs, [](const Program& program) {
    return std::ranges::any_of(program, [](const Op& op) { return op.access == Access::kAddKnown; });
  });
}

class DszoomDriverOrders : public testing::TestWithParam<Scenario> {};

TEST_P(DszoomDriverOrders, AreSequentiallyConsistent) {
  const Result result = Explorer<World>(GetParam(), sequential_outcomes(GetParam())).run();
  std::printf("%s, %zu executions, %zu outcomes\n", exploring::summary(GetParam().name, result.report).c_str(),
              result.executions, result.outcomes.size());
  ASSERT_EQ(result.report.failure, "") << result.report.trace;
  // Every order was tried: so all that a sequential memory can show has been seen. (Of a batch not what only accesses
  // one by one can show.)
  if (has_batch(GetParam())) return;
  EXPECT_EQ(result.outcomes, sequential_outcomes(GetParam()));
}

std::string test_name(const testing::TestParamInfo<Scenario>& tested) {
  std::string out;
  for (const char c : tested.param.name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomDriverOrders, testing::ValuesIn(scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, DszoomDriverOrders, testing::ValuesIn(long_scenarios()), test_name);

class DszoomDriverMutant : public testing::TestWithParam<Mutant> {};

TEST_P(DszoomDriverMutant, IsRefuted) {
  std::vector<Scenario> all = scenarios();
  // Two requesters at a time are soon refuted, and long explored.
  std::ranges::copy(long_scenarios(), std::back_inserter(all));
  for (Scenario& scenario : all) {
    if (caches(scenario) != (GetParam() >= Mutant::kSeesNoEpoch)) continue;
    scenario.mutant = GetParam();
    const Result result = Explorer<World>(scenario, sequential_outcomes(scenario)).run();
    if (result.report.failure.empty()) continue;
    EXPECT_EQ(result.report.failure.find("too many"), std::string::npos) << result.report.failure;
    std::printf("%s | %s | %zu | %s\n", name(GetParam()), scenario.name.c_str(), result.executions,
                result.report.failure.c_str());
    return;
  }
  FAIL() << "no exploration refutes: " << name(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomDriverMutant,
                         testing::Values(Mutant::kSeesNoHazards, Mutant::kGetsOvertake, Mutant::kUnlockBeforeFill,
                                         Mutant::kNoFlags, Mutant::kFlagsNotWaitedFor, Mutant::kNoUnlock,
                                         Mutant::kLocksWithoutEffect, Mutant::kNothingTaken,
                                         Mutant::kStoreWithoutHazard, Mutant::kLookThenPublish,
                                         Mutant::kHazardStaysOpen, Mutant::kSeesNoEpoch, Mutant::kOneEvenValue,
                                         Mutant::kEpochThenPublish, Mutant::kLookThenCache));

}  // namespace
}  // namespace multigrain::dszoom::explored
