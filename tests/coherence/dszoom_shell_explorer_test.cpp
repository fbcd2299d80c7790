// DSZOOM's shell (coherence/dszoom/shell.cpp) on three nodes and two lines, in every order of its remote operations and
// of the accesses of memory that nodes share: dszoom_shell_world.h says what a step is. Depth first, and stateless:
// each execution begins at the start, repeats the choices that led to where another is open, goes on with new ones
// until it comes to a state that was seen, and is then brought to its end anyhow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>

#include "dszoom_shell_world.h"
#include "explorer.h"

namespace multigrain::dszoom::exploring_shell {
namespace {

constexpr size_t kMaxStates = 20'000'000;
constexpr size_t kMaxSteps = 10'000;  // of one execution

struct Result {
  exploring::Report report;
  size_t executions = 0;
  std::set<Outcome> outcomes;
};

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) : scenario_(scenario), allowed_(sequential_outcomes(scenario)) {}

  Result run() {
    auto world = std::make_unique<World>(scenario_);
    do {
      ++result_.executions;
      if (!execute(*world)) break;
      if (seen_.size() > kMaxStates) {
        fail("too many states: the exploration is not complete");
        break;
      }
    } while (next_path());
    exploring::Report& report = result_.report;
    report.states = seen_.size();
    report.transitions = edges_.size();
    report.ends = ends_.size();
    if (report.failure.empty() && exploring::find_livelock(seen_.size(), edges_, ends_) != seen_.size())
      fail("livelock: there is a state from which the programs cannot end");
    if (!report.failure.empty()) {
      // One that failed is left where it is.
      world.reset();
      tell();
    }
    return std::move(result_);
  }

 private:
  struct Branch {
    std::vector<World::Choice> choices;
    size_t taken = 0;
    uint32_t state = 0;
  };

  void fail(std::string what) {
    if (result_.report.failure.empty()) result_.report.failure = std::move(what);
  }

  // Whether this and all before went well.
  bool execute(World& world) {
    world.start();
    steps_.clear();
    for (size_t i = 0; i < path_.size(); ++i)
      // Only the last is new.
      if (!take(world, path_[i].choices[path_[i].taken], i + 1 == path_.size())) return false;
    bool is_new = true;
    while (!world.is_over()) {
      if (is_new) is_new = come_to(world);
      World::Choice choice;
      if (is_new) {
        choice = path_.back().choices.front();
      } else {
        // Everybody in turn, so that who waits for another does so for a bounded time.
        world.enabled(choices_);
        if (choices_.empty()) break;
        choice = choices_[steps_.size() % choices_.size()];
      }
      if (!take(world, choice, true)) return false;
      if (steps_.size() > kMaxSteps) {
        fail("an execution does not end");
        return false;
      }
    }
    if (!world.is_over()) {
      fail("deadlock");
      return false;
    }
    if (is_new) {
      const auto [state, is_first] = remember(world);
      if (is_first) ends_.push_back(state);
    }
    fail(world.check_end());
    if (!result_.report.failure.empty()) return false;
    const Outcome outcome = world.outcome();
    if (allowed_.count(outcome) == 0) fail("not sequentially consistent: " + in_words(outcome));
    result_.outcomes.insert(outcome);
    return result_.report.failure.empty();
  }

  bool take(World& world, World::Choice choice, bool is_new) {
    steps_.push_back(choice);
    world.take(choice);
    if (is_new) fail(world.check());
    return result_.report.failure.empty();
  }

  std::pair<uint32_t, bool> remember(const World& world) {
    bytes_.clear();
    world.serialise(bytes_);
    const auto found = seen_.insert(exploring::hash(bytes_));
    if (!path_.empty()) edges_.push_back({path_.back().state, found.first});
    return found;
  }

  // Returns whether the state is new; if so, path_ has what can be done there.
  bool come_to(const World& world) {
    const auto [state, is_new] = remember(world);
    if (!is_new) return false;
    Branch branch;
    branch.state = state;
    world.enabled(branch.choices);
    if (branch.choices.empty()) return false;
    path_.push_back(std::move(branch));
    result_.report.depth = std::max(result_.report.depth, path_.size());
    return true;
  }

  bool next_path() {
    while (!path_.empty() && ++path_.back().taken == path_.back().choices.size()) path_.pop_back();
    return !path_.empty();
  }

  static std::string in_words(const Outcome& outcome) {
    std::string out;
    for (const uint64_t value : outcome) out += fmt::format(" {:#x}", value);
    return out;
  }

  // Repeats what failed, in words.
  void tell() {
    World world(scenario_);
    world.start();
    std::string& out = result_.report.trace;
    for (size_t i = 0; i < steps_.size() && i < 400; ++i) {
      out += fmt::format("{:3}. {}\n", i + 1, world.in_words(steps_[i]));
      world.take(steps_[i]);
    }
  }

  const Scenario& scenario_;
  const std::set<Outcome> allowed_;
  Result result_;
  exploring::Seen seen_;
  std::vector<exploring::Edge> edges_;
  std::vector<uint32_t> ends_;
  std::vector<Branch> path_;
  std::vector<World::Choice> steps_;  // of this execution
  std::vector<World::Choice> choices_;
  std::vector<uint8_t> bytes_;
};

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
  add_scenario("remembered: the home adds twice, another once", {0, 0},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {add(0, 0, 2)}});
  add_scenario("remembered: the home adds, another reads", {0, 0},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {load(0, 0), load(0, 0)}});
  add_scenario("remembered: ownership comes back", {0, 0},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {add_known(0, 0, 2), add_known(0, 0, 2)}});
  add_scenario("remembered: three hops", {2, 2},
               {{add_known(0, 0, 1), add_known(0, 0, 1)}, {add_known(0, 0, 2), add_known(0, 0, 2)}});
  return all;
}

// Minutes.
std::vector<Scenario> long_scenarios() {
  return {
      {"ownership goes round, two lines", {0, 1}, {{add(0, 0, 1)}, {add(0, 0, 2), add(1, 0, 2)}, {add(1, 0, 4)}}},
      {"independent reads in small, homes exchanged", {0, 1},
       {{store(0, 0, 1)}, {load(0, 0), load(1, 0)}, {store(1, 0, 1), load(0, 0)}}},
      {"store buffering of three", {0, 1},
       {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 1)}, {store(0, 1, 1), load(0, 0)}}},
      {"store buffering of three, over one home", {2, 2},
       {{store(0, 0, 1), load(1, 0)}, {store(1, 0, 1), load(0, 1)}, {store(0, 1, 1), load(0, 0)}}},
      {"a batch, a writer and a reader", {0, 1}, {{add_to_both(0, 1)}, {store(1, 0, 8)}, {load(0, 0)}}},
      {"three nodes, two processors on one", {1, 1}, {{add(0, 0, 1)}, {load(0, 0)}, {add(0, 0, 2)}, {load(0, 0)}},
       Mutant::kNone, {0, 0, 1, 2}},
      {"remembered: two requesters for two lines", {0, 0},
       {{add_known(0, 0, 1), add_known(0, 0, 1)}, {store(0, 0, 2)}, {store(1, 0, 4)}}},
      {"remembered: two requesters of one node", {0, 0},
       {{add_known(0, 0, 1), add_known(0, 0, 1)}, {store(0, 0, 2)}, {store(1, 0, 4)}}, Mutant::kNone, {0, 1, 1}},
  };
}

bool has_batch(const Scenario& scenario) {
  return std::ranges::any_of(scenario.programs, [](const Program& program) {
    return std::ranges::any_of(program, [](const Op& op) { return op.access == Access::kAddBoth; });
  });
}

bool remembers(const Scenario& scenario) {
  return std::ranges::any_of(scenario.programs, [](const Program& program) {
    return std::ranges::any_of(program, [](const Op& op) { return op.access == Access::kAddKnown; });
  });
}

class DszoomShellOrders : public testing::TestWithParam<Scenario> {};

TEST_P(DszoomShellOrders, AreSequentiallyConsistent) {
  const Result result = Explorer(GetParam()).run();
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

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomShellOrders, testing::ValuesIn(scenarios()), test_name);
INSTANTIATE_TEST_SUITE_P(DISABLED_Long, DszoomShellOrders, testing::ValuesIn(long_scenarios()), test_name);

class DszoomShellMutant : public testing::TestWithParam<Mutant> {};

TEST_P(DszoomShellMutant, IsRefuted) {
  std::vector<Scenario> all = scenarios();
  // Two requesters at a time are soon refuted, and long explored.
  std::ranges::copy(long_scenarios(), std::back_inserter(all));
  for (Scenario& scenario : all) {
    if (remembers(scenario) != (GetParam() >= Mutant::kSeesNoLosses)) continue;
    scenario.mutant = GetParam();
    const Result result = Explorer(scenario).run();
    if (result.report.failure.empty()) continue;
    EXPECT_EQ(result.report.failure.find("too many"), std::string::npos) << result.report.failure;
    std::printf("%s | %s | %zu | %s\n", name(GetParam()), scenario.name.c_str(), result.executions,
                result.report.failure.c_str());
    return;
  }
  FAIL() << "no exploration refutes: " << name(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Dszoom, DszoomShellMutant,
                         testing::Values(Mutant::kSeesNoWindows, Mutant::kGetsOvertake, Mutant::kUnlockBeforeFill,
                                         Mutant::kNoFlags, Mutant::kFlagsNotWaitedFor, Mutant::kNoUnlock,
                                         Mutant::kLocksWithoutEffect, Mutant::kNothingTaken,
                                         Mutant::kStoreWithoutWindow, Mutant::kLookThenPublish,
                                         Mutant::kWindowStaysOpen, Mutant::kSeesNoLosses, Mutant::kOneEvenValue,
                                         Mutant::kLossesThenPublish, Mutant::kLookThenRemember));

}  // namespace
}  // namespace multigrain::dszoom::exploring_shell
