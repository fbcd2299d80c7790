// mgrun --record and mgtrace analyze --decisions, as a user runs them.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "trace_files.h"

namespace multigrain::trace {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class RunRecordingTest : public testing::Test {
 protected:
  struct Run {
    int status;
    std::string text;  // both streams
  };
  Run run(const std::string& command) {
    const std::string whole = fmt::format("cd '{}' && {} 2>&1", directory_ / ".", command);
    std::FILE* const pipe = popen(whole.c_str(), "r");
    std::string text;
    char buffer[4096];
    for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
  }
  Run record(const std::string& options, const std::string& arguments = "", const std::string& trace = "run.mgt") {
    return run(
        fmt::format("'{}' --protocol placement --record {} {} '{}' {}", MGRUN, trace, options, PLACED, arguments));
  }
  Run analyze(const std::string& arguments) { return run(fmt::format("'{}' analyze {}", MGTRACE, arguments)); }

  Directory directory_;
};

// Who uses which page when is decided by the program's barriers, so a policy that knows no time does the same on the trace.
TEST_F(RunRecordingTest, ThePolicyDoesOnTheTraceWhatItDidInTheRun) {
  for (const char* const machine : {"--nodes 3 --procs-per-node 1", "--nodes 2 --procs-per-node 2"}) {
    uint64_t references = 0;
    for (const char* const policy :
         {"ace", "ace:invalidations=1", "always-migrate", "first-touch", "interleaved", "global"}) {
      SCOPED_TRACE(fmt::format("{} {}", machine, policy));
      const Run recorded = record(fmt::format("{} --policy {}", machine, policy));
      ASSERT_EQ(recorded.status, 0) << recorded.text;
      EXPECT_THAT(recorded.text, HasSubstr("decisions of the policy"));
      const Run analyzed = analyze("run.mgt --decisions --json -");
      ASSERT_EQ(analyzed.status, 0) << analyzed.text;
      const json out = json::parse(analyzed.text);
      const json& placements = out["machines"][0]["placements"];
      EXPECT_EQ(placements[1]["name"], "run");
      EXPECT_EQ(placements[2]["name"], "replay");
      EXPECT_EQ(placements[1]["parts"], placements[2]["parts"]);
      EXPECT_EQ(out["moves_without_references"], 0);
      EXPECT_GE(placements[1]["mcpr"].get<double>(), placements[0]["mcpr"].get<double>());
      EXPECT_DOUBLE_EQ(out["machines"][0]["gap"]["interleaving_and_other"].get<double>(), 0);
      // It is the same program, whoever places its pages.
      if (references == 0) references = out["references"].get<uint64_t>();
      EXPECT_EQ(out["references"].get<uint64_t>(), references);
    }
    EXPECT_GT(references, 20'000u);
  }
}

// Threads of one node use a page that another thread of theirs was granted, while other nodes take it away: each reference has a place at which
// its node had the right.
TEST_F(RunRecordingTest, WhatRacesFitsItsTrace) {
  uint64_t decisions = 0;
  for (const char* const policy : {"ace:invalidations=50", "always-migrate"}) {
    SCOPED_TRACE(policy);
    for (int i = 0; i < 3; ++i) {
      const Run recorded = record(fmt::format("--nodes 3 --procs-per-node 3 --policy {}", policy), "200 racing");
      ASSERT_EQ(recorded.status, 0) << recorded.text;
      const Run analyzed = analyze("run.mgt --decisions --json -");
      ASSERT_EQ(analyzed.status, 0) << analyzed.text;
      decisions += json::parse(analyzed.text)["decisions"].get<uint64_t>();
    }
  }
  // Where threads never meet, there is nothing to see.
  EXPECT_GT(decisions, 100u);
}

// PLATINUM knows times, of which a trace has only those of the decisions.
TEST_F(RunRecordingTest, TheRunOfAPolicyWithTimesFitsItsTrace) {
  ASSERT_EQ(record("--nodes 3 --policy platinum:t1=1000000:t2=5000000", "20").status, 0);
  const Run analyzed = analyze("run.mgt --decisions run.mgt.decisions --policy all --json -");
  ASSERT_EQ(analyzed.status, 0) << analyzed.text;
  const json out = json::parse(analyzed.text);
  const json& gap = out["machines"][0]["gap"];
  EXPECT_NEAR(gap["all"].get<double>(), gap["policy"].get<double>() + gap["interleaving_and_other"].get<double>(),
              1e-9);
  EXPECT_GT(out["machines"][0]["placements"].size(), 8u);
}

TEST_F(RunRecordingTest, ATableNamesTheGap) {
  ASSERT_EQ(record("--nodes 2").status, 0);
  const Run analyzed = analyze("run.mgt --decisions");
  ASSERT_EQ(analyzed.status, 0) << analyzed.text;
  EXPECT_THAT(analyzed.text, HasSubstr("the run itself, under ace"));
  EXPECT_THAT(analyzed.text, HasSubstr("by its policy"));
  const Run info = run(fmt::format("'{}' info --full --json run.mgt", MGTRACE));
  ASSERT_EQ(info.status, 0) << info.text;
  EXPECT_EQ(json::parse(info.text)["processors"], 2);
  EXPECT_THAT(directory_.names(), ElementsAre("run.mgt", "run.mgt.decisions"));
}

TEST_F(RunRecordingTest, ForeignAndTornDecisionsAreRefused) {
  ASSERT_EQ(record("--nodes 2", "4", "a.mgt").status, 0);
  ASSERT_EQ(record("--nodes 2", "6", "b.mgt").status, 0);
  const Run foreign = analyze("a.mgt --decisions b.mgt.decisions");
  EXPECT_EQ(foreign.status, 2);
  EXPECT_THAT(foreign.text, testing::AnyOf(HasSubstr("do not fit the trace: "), HasSubstr("are of another trace")));
  const std::string log = slurp(directory_ / "a.mgt.decisions");
  spill(directory_ / "torn", log.substr(0, log.size() / 2));
  const Run torn = analyze("a.mgt --decisions torn");
  EXPECT_EQ(torn.status, 2);
  EXPECT_THAT(torn.text, HasSubstr("torn: the decisions end too early"));
  const Run missing = analyze("a.mgt --decisions nothing");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.text, HasSubstr("cannot read the decisions 'nothing'"));
  const Run trace = analyze("a.mgt --decisions a.mgt");
  EXPECT_EQ(trace.status, 2);
  EXPECT_THAT(trace.text, HasSubstr("has no decisions of a run in it"));
  const Run machine = analyze("a.mgt --decisions a.mgt.decisions --machine butterfly");
  EXPECT_EQ(machine.status, 2);
  EXPECT_THAT(machine.text, HasSubstr("has no global memory"));
}

TEST_F(RunRecordingTest, WhatCannotBeRecordedIsRefused) {
  const Run other = run(fmt::format("'{}' --nodes 2 --protocol sc --record run.mgt '{}'", MGRUN, PLACED));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.text,
              HasSubstr("--record records what a policy does with pages, and the protocol of this run is sc"));
  const Run folder = record("--nodes 2", "", "nowhere/run.mgt");
  EXPECT_EQ(folder.status, 2);
  EXPECT_THAT(folder.text, HasSubstr("nowhere"));
  const Run silent = run(fmt::format("'{}' --nodes 2 --protocol placement --record run.mgt '{}'", MGRUN, SILENT));
  EXPECT_EQ(silent.status, 2);
  EXPECT_THAT(silent.text, HasSubstr("--record needs a program that reports its accesses to memory"));
  EXPECT_TRUE(directory_.names().empty());
}

}  // namespace
}  // namespace multigrain::trace
