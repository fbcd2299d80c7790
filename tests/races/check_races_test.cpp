// mgrun --check-races, on the functions of race_cases.c: it tells of each of those that have a race, and of none of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "support/program_run.h"

namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using Strings = std::vector<std::string>;
using multigrain::testing::Outcome;
using multigrain::testing::run;

Outcome check(const std::string& nodes, const std::string& processors, const Strings& rest) {
  Strings command = {MGRUN, "--check-races", "--nodes", nodes, "--procs-per-node", processors};
  command.insert(command.end(), rest.begin(), rest.end());
  return run(command);
}

// The functions of that kind, by the names that race_cases.c gives them.
std::set<std::string> functions(const std::string& kind) {
  std::ifstream source(SOURCE);
  std::set<std::string> names;
  for (std::string line; std::getline(source, line);) {
    const std::string begin = "static void " + kind + "_";
    if (line.starts_with(begin)) names.insert(line.substr(12, line.find('(') - 12));
  }
  return names;
}

// Those of them that a report names.
std::set<std::string> named(const std::set<std::string>& names, const std::string& text) {
  std::set<std::string> found;
  for (const std::string& name : names)
    if (text.find(name + " at ") != std::string::npos) found.insert(name);
  return found;
}

struct Machine {
  const char* name;
  const char* program;
  const char* nodes;
  const char* processors;
  Strings options;
};

class CheckRaces : public testing::TestWithParam<Machine> {
 protected:
  static Outcome run_kind(const char* kind) {
    Strings rest = GetParam().options;
    rest.insert(rest.end(), {GetParam().program, kind});
    return check(GetParam().nodes, GetParam().processors, rest);
  }
};

TEST_P(CheckRaces, TellsOfEachRace) {
  const std::set<std::string> racy = functions("racy");
  ASSERT_EQ(racy.size(), 40u);
  const Outcome it = run_kind("racy");
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, HasSubstr("done"));
  EXPECT_EQ(named(racy, it.text), racy) << it.text;
  EXPECT_THAT(it.text, ContainsRegex("--check-races: [0-9]+ pairs of places race, seen [0-9]+ times"));
}

TEST_P(CheckRaces, TellsOfNothingElse) {
  ASSERT_EQ(functions("clean").size(), 40u);
  const Outcome it = run_kind("clean");
  EXPECT_EQ(it.status, 0) << it.text;
  EXPECT_EQ(it.text, "done\n");
}

// C11's atomics are coherent between nodes under sc, and in programs of threads under any protocol.
INSTANTIATE_TEST_SUITE_P(Machines, CheckRaces,
                         testing::Values(Machine{"sc", PROGRAM, "2", "2", {"--protocol", "sc"}},
                                         Machine{"one_node", PROGRAM, "1", "4", {}},
                                         Machine{"threads_hlrc", THREADS_PROGRAM, "2", "2", {"--protocol", "hlrc"}},
                                         Machine{"threads_mgs", THREADS_PROGRAM, "4", "1", {"--protocol", "mgs"}}),
                         [](const auto& machine) { return machine.param.name; });

// Each thread in turn comes to each function when the others have done what they can: no order of the threads hides a race.
TEST(CheckRacesSchedules, HideNoRace) {
  const std::set<std::string> racy = functions("racy");
  for (const char* const late : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(late);
    const Outcome it = check("1", "4", {PROGRAM, "racy", "0", late});
    EXPECT_EQ(it.status, 66) << it.text;
    EXPECT_EQ(named(racy, it.text), racy) << it.text;
  }
}

// Loops tell of what they access before they run: of all of that, and of nothing else.
TEST(CheckRacesRanges, AreThoseThatTheLoopsAccess) {
  for (const std::string name :
       {"whole", "read", "rows", "columns", "strips", "no_rows", "falling", "some", "thirds", "pairs", "triangle"}) {
    SCOPED_TRACE(name);
    const Outcome race = check("1", "2", {RANGES_PROGRAM, name, "race"});
    EXPECT_EQ(race.status, name == "no_rows" ? 0 : 66) << race.text;
    const Outcome near = check("1", "2", {RANGES_PROGRAM, name, "near"});
    EXPECT_EQ(near.status, 0) << near.text;
  }
}

TEST(CheckRacesRanges, NameTheLinesThatTellTogether) {
  const Outcome it = check("1", "2", {RANGES_PROGRAM, "pairs", "race"});
  EXPECT_THAT(it.text, ContainsRegex("write by processor 0 on node 0: set_pairs at range_cases.c:[0-9]+ or [0-9]+\n"));
}

TEST(CheckRacesReports, NameBothPlacesTheCallsAndTheBlock) {
  const Outcome it = check("2", "2", {"--protocol", "sc", PROGRAM, "racy", "37"});
  EXPECT_EQ(it.status, 66) << it.text;
  EXPECT_THAT(it.text, ContainsRegex("multigrain: data race at 0x[0-9a-f]+, byte [0-9]+ of a block of [0-9]+ bytes at "
                                     "0x[0-9a-f]+, allocated by processor 0 on node 0: "));
  EXPECT_THAT(it.text, ContainsRegex("  write by processor [01] on node 0: deeper at race_cases.c:[0-9]+\n"
                                     "    called from deeper at race_cases.c:[0-9]+\n"));
  EXPECT_THAT(it.text,
              ContainsRegex("  an earlier write by processor [01] on node 0: deeper at race_cases.c:[0-9]+\n"));
  EXPECT_THAT(it.text, HasSubstr("called from racy_37_deep_in_calls at race_cases.c:"));
  EXPECT_THAT(it.text, HasSubstr("--check-races: 1 pair of places races, seen 1 time\n"));
}

TEST(CheckRacesReports, AProgramThatWasNotCompiledForItIsRefused) {
  const Outcome it = check("2", "1", {OTHER_PROGRAM});
  EXPECT_EQ(it.status, 2) << it.text;
  EXPECT_THAT(it.text,
              ContainsRegex("the accesses of .*racing_program do not tell of themselves: compile and link all of the "
                            "program with mgcc or mg\\+\\+ and -fmultigrain-races"));
}

TEST(CheckRacesReports, WhatDoesNotGoTogetherIsRefused) {
  for (const auto& [options, sentence] : std::vector<std::pair<Strings, std::string>>{
           {{"--races"}, "--races and --check-races exclude each other"},
           {{"--fabric", "ucx"}, "so they must be on one machine"},
           {{"--clock", "virtual"}, "--check-races and virtual time exclude each other"},
           {{"--protocol", "dszoom"}, "--check-races needs a page protocol"},
           {{"--races-memory", "1M"}, "it must be 16M at least"},
           {{"--procs-per-node", "128"}, "--check-races has clocks of at most"}}) {
    Strings rest = options;
    rest.insert(rest.end(), {PROGRAM, "clean"});
    const Outcome it = check("2", "2", rest);
    EXPECT_EQ(it.status, 2) << it.text;
    EXPECT_THAT(it.text, HasSubstr(sentence));
  }
  const Outcome alone = run({MGRUN, "--races-memory", "1G", PROGRAM, "clean"});
  EXPECT_EQ(alone.status, 2) << alone.text;
  EXPECT_THAT(alone.text, HasSubstr("--races-memory limits what --check-races takes"));
  const Outcome one_node = check("1", "4", {THREADS_PROGRAM, "clean"});
  EXPECT_EQ(one_node.status, 2) << one_node.text;
  EXPECT_THAT(one_node.text, HasSubstr("give --nodes 2, or more"));
}

// Where address randomisation cannot be turned off, nodes are copies of one process. They share what is known, and reports
// find code wherever it was loaded.
TEST(CheckRacesReports, NodesThatAreCopiesOfOneProcessTellAsOthersDo) {
  const std::set<std::string> racy = functions("racy");
  for (unsigned times = 0; times < 4; ++times) {
    const Outcome it = run({AS_IN_DOCKER, MGRUN, "--check-races", "--nodes", "2", "--procs-per-node", "2", "--protocol",
                            "sc", PROGRAM, "racy"});
    EXPECT_EQ(it.status, 66) << it.text;
    EXPECT_EQ(named(racy, it.text), racy) << it.text;
    EXPECT_THAT(it.text, ContainsRegex("allocated by processor 0 on node 0: [a-z]+ at race_cases.c:[0-9]+"));
    EXPECT_THAT(it.text, HasSubstr("called from racy_37_deep_in_calls at race_cases.c:"));
  }
}

TEST(CheckRacesReports, WithoutTheOptionNothingIsLookedFor) {
  const Outcome it = run({MGRUN, "--nodes", "2", "--procs-per-node", "2", "--protocol", "sc", PROGRAM, "racy"});
  EXPECT_EQ(it.status, 0) << it.text;
  EXPECT_EQ(it.text, "done\n");
}

}  // namespace
