// mgrun --record and mgtrace analyze --decisions, as a user runs them.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

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

// Of a run with one processor, the sample is what the whole recording has in the bursts; of any run, each reference is in the
// trace or counted as left out, and what the placement did is there as a whole.
TEST_F(RunRecordingTest, SamplingTakesBurstsAndAllDecisions) {
  const auto references_of = [&](const std::string& trace) {
    auto file = TraceFile::open(directory_ / trace);
    EXPECT_TRUE(file) << file.error().message;
    std::vector<Reference> all;
    for (;;) {
      const auto batch = (*file)->next();
      EXPECT_TRUE(batch) << batch.error().message;
      if (!batch || (batch->references.empty() && batch->events.empty())) return all;
      all.insert(all.end(), batch->references.begin(), batch->references.end());
    }
  };
  const auto equal = [](const Reference& a, const Reference& b) {
    return a.address == b.address && a.access == b.access && a.size == b.size;
  };
  ASSERT_EQ(record("--nodes 1", "60", "all.mgt").status, 0);
  const Run alone = record("--nodes 1 --sample 300/3000", "60", "some.mgt");
  ASSERT_EQ(alone.status, 0) << alone.text;
  EXPECT_THAT(alone.text, HasSubstr("sampled: bursts of 300 in each 3000 of a processor's references; one of "));
  const std::vector<Reference> all = references_of("all.mgt"), some = references_of("some.mgt");
  ASSERT_GT(all.size(), 30'000u);
  EXPECT_NEAR(static_cast<double>(some.size()), static_cast<double>(all.size()) / 10, 600);
  size_t at = 0;
  for (size_t i = 0; i < some.size(); ++i, ++at) {
    while (at < all.size() && !equal(all[at], some[i])) ++at;
    ASSERT_LT(at, all.size()) << "reference " << i << " of the sample is not where the whole recording has it";
  }
  // Those that follow each other in a burst do so in the run.
  const auto both = [](const Reference& a, const Reference& b) {
    return std::array{a.address, static_cast<uint64_t>(a.access), b.address, static_cast<uint64_t>(b.access)};
  };
  std::set<std::array<uint64_t, 4>> neighbours;
  for (size_t i = 1; i < all.size(); ++i) neighbours.insert(both(all[i - 1], all[i]));
  size_t pieces = 1;
  for (size_t i = 1; i < some.size(); ++i) pieces += neighbours.contains(both(some[i - 1], some[i])) ? 0 : 1;
  EXPECT_LE(pieces, all.size() / 3000 + 2) << "the bursts are in pieces";

  for (const char* const policy : {"ace", "always-migrate", "first-touch", "global"}) {
    SCOPED_TRACE(policy);
    ASSERT_EQ(record(fmt::format("--nodes 3 --policy {}", policy), "20", "all.mgt").status, 0);
    ASSERT_EQ(record(fmt::format("--nodes 3 --policy {} --sample 500/4000", policy), "20", "some.mgt").status, 0);
    const json whole = json::parse(analyze("all.mgt --decisions --json -").text);
    const Run sampled = analyze("some.mgt --decisions --json -");
    ASSERT_EQ(sampled.status, 0) << sampled.text;
    const json sample = json::parse(sampled.text);
    EXPECT_TRUE(whole["sampling"].is_null());
    const double scale = sample["sampling"]["scale"].get<double>();
    EXPECT_EQ(std::llround(scale * sample["references"].get<double>()), whole["references"].get<int64_t>());
    EXPECT_GT(scale, 4);
    EXPECT_LT(scale, 16);
    EXPECT_EQ(sample["decisions"], whole["decisions"]);
    const json& placements = sample["machines"][0]["placements"];
    EXPECT_GE(placements[1]["mcpr"].get<double>(), placements[0]["mcpr"].get<double>() - 1e-9);
  }
  EXPECT_THAT(analyze("some.mgt --decisions").text, HasSubstr("Sampled: bursts of 500 in each 4,000 of a processor's"));

  ASSERT_EQ(record("--nodes 3 --procs-per-node 3 --sample 50/1000", "100 racing").status, 0);
  const Run racing = analyze("run.mgt --decisions");
  EXPECT_EQ(racing.status, 0) << racing.text;
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
  const Run sample = record("--nodes 2 --sample 5");
  EXPECT_EQ(sample.status, 2);
  EXPECT_THAT(sample.text, HasSubstr("--sample 5: give BURST/INTERVAL, two numbers of references"));
  const Run nothing = run(fmt::format("'{}' --nodes 2 --protocol placement --sample 1/10 '{}'", MGRUN, PLACED));
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.text, HasSubstr("--sample says which references --record records"));
  const Run few = record("--nodes 2 --sample 1/1000000000", "1");
  EXPECT_EQ(few.status, 1);
  EXPECT_THAT(few.text, HasSubstr("is in a burst: bursts of 1 in intervals of 1000000000 are too few for a run that"));
  EXPECT_TRUE(directory_.names().empty());
}

}  // namespace
}  // namespace multigrain::trace
