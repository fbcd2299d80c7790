// mgrun --timeline, with programs on several nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "support/program_run.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using Strings = std::vector<std::string>;
using multigrain::testing::Outcome;

Outcome run(const Strings& options, const Strings& program) {
  Strings command = {MGRUN};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), program.begin(), program.end());
  return multigrain::testing::run(command);
}

std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const Strings kWater = {WORKLOADS "/water", "--molecules", "64"};
#ifdef HAS_COUNTED_WORKLOADS
const Strings kCountedWater = {WORKLOADS "/counted/water", "--molecules", "64"};
#endif

class Timeline : public testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(folder_.path().empty()); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.path() / name; }

 private:
  multigrain::TemporaryFolder folder_{"timeline-test"};
};

// Slices of one row lie beside each other or inside each other.
void expect_nested(const json& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> rows;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X")
      rows[{event["pid"], event["tid"]}].emplace_back(event["ts"].get<double>(), event["dur"].get<double>());
  for (const auto& [row, slices] : rows) {
    std::vector<double> ends;
    for (const auto& [begin, duration] : slices) {
      // A slice may seem to reach past its surroundings by what rounding to nanoseconds does.
      while (!ends.empty() && ends.back() <= begin + 0.002) ends.pop_back();
      const double end = begin + duration;
      EXPECT_TRUE(ends.empty() || end <= ends.back() + 0.002) << "node " << row.first << " row " << row.second << ": "
                                                              << begin << " to " << end << " in one to " << ends.back();
      ends.push_back(end);
    }
  }
}

std::set<std::string> names_of(const json& trace, const std::string& category) {
  std::set<std::string> names;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == category) names.insert(event["name"]);
  return names;
}

TEST_F(Timeline, ShowsTimesFaultsAndCallsOfEveryProcessor) {
  for (const char* const protocol : {"mgs", "hlrc"}) {
    const Outcome it =
        run({"--nodes", "2", "--procs-per-node", "2", "--protocol", protocol, "--timeline", file("t.json")}, kWater);
    ASSERT_EQ(it.status, 0) << it.text;
    const json trace = json::parse(contents(file("t.json")));
    std::set<std::string> rows;
    for (const json& event : trace["traceEvents"])
      if (event["ph"] == "M" && event["name"] == "thread_name") rows.insert(event["args"]["name"]);
    EXPECT_THAT(rows, IsSupersetOf({"processor 0", "processor 1", "processor 2", "processor 3", "service of node 1"}));
    EXPECT_THAT(names_of(trace, "time"), IsSupersetOf({"user", "protocol", "barrier"}));
    std::string faults;
    for (const std::string& name : names_of(trace, "fault")) faults += name + "\n";
    EXPECT_THAT(faults, HasSubstr(" bytes of ")) << "no fault names the block that it is in";
    EXPECT_FALSE(names_of(trace, "call").empty());
    expect_nested(trace);
  }
}

TEST_F(Timeline, HasAnArrowWithBothEnds) {
  const Outcome it = run({"--nodes", "2", "--protocol", "sc", "--timeline", file("t.json")}, kWater);
  ASSERT_EQ(it.status, 0) << it.text;
  const json trace = json::parse(contents(file("t.json")));
  std::multiset<std::string> begins, ends;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "s") begins.insert(event["id"]);
    if (event["ph"] == "f") ends.insert(event["id"]);
  }
  EXPECT_FALSE(begins.empty());
  EXPECT_EQ(begins, ends);
}

TEST_F(Timeline, BetweenHostsToo) {
  const Outcome it =
      run({"--nodes", "2", "--fabric", "ucx", "--protocol", "mgs", "--timeline", file("t.json")}, kWater);
  ASSERT_EQ(it.status, 0) << it.text;
  expect_nested(json::parse(contents(file("t.json"))));
}

#ifdef HAS_COUNTED_WORKLOADS
TEST_F(Timeline, IsTheSameTwiceInCountedTime) {
  const Strings options = {"--nodes", "2", "--procs-per-node", "2", "--protocol", "hlrc", "--clock", "counted"};
  std::string first;
  for (const char* const name : {"a.json", "b.json"}) {
    Strings all = options;
    all.insert(all.end(), {"--timeline", file(name)});
    const Outcome it = run(all, kCountedWater);
    ASSERT_EQ(it.status, 0) << it.text;
  }
  EXPECT_EQ(contents(file("a.json")), contents(file("b.json")));
  EXPECT_THAT(contents(file("a.json")), HasSubstr("\"clock\":\"counted\""));
}
#endif

TEST_F(Timeline, IsAPageIfTheNameSaysSo) {
  const Outcome it = run({"--nodes", "2", "--timeline", file("t.html")}, kWater);
  ASSERT_EQ(it.status, 0) << it.text;
  const std::string page = contents(file("t.html"));
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("Faults by line of the program"));
  EXPECT_LT(page.size(), 2'000'000u);
}

TEST_F(Timeline, OfAProgramAsItIs) {
  const Outcome it = run({"--binary", "--nodes", "2", "--timeline", file("t.json")}, {"/bin/echo", "hello"});
  ASSERT_EQ(it.status, 0) << it.text;
  EXPECT_THAT(it.text, HasSubstr("hello"));
  const json trace = json::parse(contents(file("t.json")));
  EXPECT_THAT(names_of(trace, "time"), IsSupersetOf({"user", "system call"}));
  expect_nested(trace);
}

TEST_F(Timeline, IsRefusedBeforeTheRunIfItCannotBeWritten) {
  const Outcome it = run({"--nodes", "2", "--timeline", "/no/such/folder/t.json"}, kWater);
  EXPECT_NE(it.status, 0);
  EXPECT_THAT(it.text, HasSubstr("--timeline"));
  EXPECT_THAT(it.text, HasSubstr("/no/such/folder"));
  EXPECT_THAT(it.text, Not(HasSubstr("water")));
}

TEST_F(Timeline, FullDiskCostsTheTimeLineAlone) {
  const Outcome it = run({"--nodes", "2", "--timeline", "/dev/full"}, kWater);
  EXPECT_NE(it.status, 0);
  EXPECT_THAT(it.text, HasSubstr("--timeline: cannot write /dev/full: No space left on device"));
  EXPECT_THAT(it.text, HasSubstr("water")) << "the program's own output is there";
}

}  // namespace
