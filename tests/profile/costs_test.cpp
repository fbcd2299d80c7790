// mgrun --stats names memory, lines and locks, with advice, in runs of a program whose costs are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "support/program_run.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;
using Strings = std::vector<std::string>;
using multigrain::testing::Outcome;

// Returns the number of the program's line that has this text.
std::string line_with(const std::string& text) {
  std::ifstream file(SOURCE);
  std::string line;
  for (unsigned number = 1; std::getline(file, line); ++number)
    if (line.find(text) != std::string::npos) return "costly_program.c:" + std::to_string(number);
  return "there is no line with " + text;
}

class CostsOfRun : public testing::Test {
 protected:
  json costs_of(const Strings& options, const Strings& arguments = {}) {
    const std::string file = folder_.path() / "stats.json";
    Strings command = {MGRUN, "--nodes", "2", "--procs-per-node", "2", "--stats", "json:" + file};
    command.insert(command.end(), options.begin(), options.end());
    command.emplace_back(PROGRAM);
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Outcome it = multigrain::testing::run(command);
    EXPECT_EQ(it.status, 0) << it.text;
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return json::parse(text.str())["costs"];
  }

  // Returns the entry whose `key` ends with the text.
  static json entry(const json& list, const std::string& key, const std::string& end) {
    for (const json& each : list)
      if (each[key].get<std::string>().ends_with(end)) return each;
    ADD_FAILURE() << "nothing ends with " << end << " in " << list.dump(1);
    return {};
  }

 private:
  multigrain::TemporaryFolder folder_{"costs-test"};
};

TEST_F(CostsOfRun, NamesMemoryLinesAndLocks) {
  for (const char* const protocol : {"mgs", "hlrc"}) {
    SCOPED_TRACE(protocol);
    const json costs = costs_of({"--protocol", protocol});
    const json counters = entry(costs["memory"], "name", line_with("/* counters */"));
    EXPECT_EQ(counters["pages"], 1);
    EXPECT_EQ(counters["bytes"], 4096);
    EXPECT_EQ(counters["pages_written_by_many"], 1);
    EXPECT_EQ(counters["nodes"], 2);
    EXPECT_GT(counters["writes"], 0);
    // Under mgs a page that one node wrote at a time may go home whole.
    if (std::string(protocol) == "hlrc") {
      EXPECT_GT(counters["diffs"], 0);
    }
    EXPECT_THAT(counters["advice"]["sentence"], StartsWith("1 of its 1 written pages are written by several nodes"));
    EXPECT_THAT(counters["advice"]["command"], MatchesRegex("mgrun --nodes 2 --procs-per-node 2 .*costly_program"));

    const json table = entry(costs["memory"], "name", line_with("/* table */"));
    EXPECT_GE(table["pages"], 1);
    EXPECT_LE(table["pages"], 64);
    EXPECT_EQ(table["writes"], 0) << "they were before the phase";

    const json line = entry(costs["lines"], "place", line_with("/* false sharing */"));
    EXPECT_GT(line["writes"], 0);
    EXPECT_EQ(line["memory"], counters["name"]);
    const json reading = entry(costs["lines"], "place", line_with("/* reading */"));
    EXPECT_GT(reading["reads"], 0);

    const json lock = entry(costs["waits"], "place", line_with("mg_lock(lock)"));
    EXPECT_THAT(lock["object"], HasSubstr("lock of " + line_with("mg_lock_create")));
    EXPECT_GT(lock["fetched"], 0);
    EXPECT_FALSE(lock["advice"]["sentence"].get<std::string>().empty());
    const json barrier = entry(costs["waits"], "place", line_with("mg_barrier(barrier)"));
    EXPECT_THAT(barrier["object"], HasSubstr("barrier of "));
    EXPECT_EQ(barrier["waits"], 4 * 40);
    EXPECT_THAT(barrier["advice"]["command"], HasSubstr("--timeline run.html"));
  }
}

TEST_F(CostsOfRun, NamesGlobals) {
  const json costs = costs_of({"--protocol", "hlrc"}, {"globals"});
  std::string names;
  for (const json& each : costs["memory"]) names += each["name"].get<std::string>() + "\n";
  EXPECT_THAT(names, HasSubstr("the global global_total"));
}

TEST_F(CostsOfRun, BetweenHostsToo) {
  const json costs = costs_of({"--protocol", "mgs", "--fabric", "ucx"});
  EXPECT_EQ(entry(costs["memory"], "name", line_with("/* counters */"))["nodes"], 2);
}

TEST_F(CostsOfRun, AddUpToTheCountersOfFaults) {
  const std::string file = std::filesystem::temp_directory_path() / ("costs-" + std::to_string(getpid()) + ".json");
  const Outcome it =
      multigrain::testing::run({MGRUN, "--nodes", "2", "--protocol", "mgs", "--stats", "json:" + file, PROGRAM});
  ASSERT_EQ(it.status, 0) << it.text;
  const json all = json::parse(std::ifstream(file));
  std::filesystem::remove(file);
  uint64_t counted = 0, by_page = 0;
  for (const json& node : all["nodes"])
    for (const char* const name : {"read_faults", "write_faults", "upgrades", "local_faults"})
      counted += node["counters"][name].get<uint64_t>();
  for (const json& each : all["costs"]["memory"])
    by_page += each["reads"].get<uint64_t>() + each["writes"].get<uint64_t>();
  EXPECT_EQ(all["costs"]["other_ns"]["memory"], 0);
  EXPECT_EQ(by_page, counted);
}

}  // namespace
