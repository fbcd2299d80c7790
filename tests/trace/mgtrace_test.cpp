// mgtrace import, info and filter, as a user runs them.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "trace_files.h"

namespace multigrain::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Mgtrace : public testing::Test {
 protected:
  struct Run {
    int status;
    std::string text;  // both streams
  };
  Run run(const std::string& arguments) {
    const std::string command = fmt::format("cd '{}' && '{}' {} 2>&1", directory_ / ".", MGTRACE, arguments);
    std::FILE* const pipe = popen(command.c_str(), "r");
    std::string text;
    char buffer[4096];
    for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
  }
  Whole filtered(const std::string& options) {
    const Run result = run("filter t " + options + " --force -o out");
    EXPECT_EQ(result.status, 0) << result.text;
    return read_file(directory_ / "out");
  }

  Directory directory_;
};

Whole some_trace() {
  for (uint64_t seed = 0;; ++seed) {
    Whole trace = random_trace(seed, 20000);
    uint64_t writes = 0;
    for (const Reference& reference : trace.references) writes += reference.access == Access::kWrite;
    if (writes > 1000 && writes + 1000 < trace.references.size() && trace.references.size() > 10000 &&
        trace.header.processors > 2 && trace.events.size() > 100)
      return trace;
  }
}

TEST_F(Mgtrace, ImportsAndInforms) {
  spill(directory_ / "a.csv", "processor,access,address\n0,r,8\n3,w,16\n3,private,\n");
  EXPECT_EQ(run("import a.csv -o a.mgt --program 'a b'").status, 0);
  const Run info = run("info --full --json a.mgt");
  EXPECT_EQ(info.status, 0);
  const auto json = nlohmann::json::parse(info.text);
  EXPECT_EQ(json["processors"], 4);
  EXPECT_EQ(json["references"], 2);
  EXPECT_EQ(json["program"], "a b");
  EXPECT_EQ(json["per_processor"][3]["writes"], 1);
  EXPECT_EQ(json["highest_address"], 23);
  // Never over something that is there; nothing half-done stays.
  EXPECT_EQ(run("import a.csv -o a.mgt").status, 2);
  spill(directory_ / "b.csv", "processor,access,address\n0,r,8\n0,r,oops\n");
  const Run bad = run("import b.csv -o b.mgt");
  EXPECT_EQ(bad.status, 2);
  EXPECT_EQ(bad.text,
            "mgtrace: b.csv, line 3: the address 'oops' is not a whole number (the line begins at byte 31)\n");
  EXPECT_THAT(directory_.names(), ElementsAre("a.csv", "a.mgt", "b.csv"));
}

TEST_F(Mgtrace, FiltersByProcessorAddressRangeAndKind) {
  const Whole trace = some_trace();
  write_file(directory_ / "t", trace, {.block_references = 900});
  expect_same(trace, filtered("--level 9 --block 100"));
  const auto check = [&](const std::string& options, auto&& keep) {
    SCOPED_TRACE(options);
    std::vector<Reference> expected;
    for (size_t i = 0; i < trace.references.size(); ++i)
      if (keep(trace.references[i], i)) expected.push_back(trace.references[i]);
    ASSERT_FALSE(expected.empty());
    ASSERT_LT(expected.size(), trace.references.size());
    const Whole out = filtered(options);
    EXPECT_EQ(out.error, "");
    ASSERT_EQ(out.references.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_TRUE(same(out.references[i], expected[i]));
  };
  check("--processors 0,2", [](const Reference& r, size_t) { return r.processor == 0 || r.processor == 2; });
  check("--references 1000-3500", [](const Reference&, size_t i) { return i >= 1000 && i < 3500; });
  check("--references 9000-", [](const Reference&, size_t i) { return i >= 9000; });
  check("--writes", [](const Reference& r, size_t) { return r.access == Access::kWrite; });
  check("--reads --no-events", [](const Reference& r, size_t) { return r.access == Access::kRead; });
  const uint64_t middle = trace.references[5000].address;
  check(fmt::format("--addresses {:#x}-{:#x}", middle, middle + 1),
        [middle](const Reference& r, size_t) { return r.address <= middle && r.address + (r.size - 1u) >= middle; });
  // Events keep their places among what is left.
  const Whole writes = filtered("--writes");
  ASSERT_EQ(writes.events.size(), trace.events.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    uint64_t before = 0;
    for (size_t j = 0; j < trace.events[i].position; ++j) before += trace.references[j].access == Access::kWrite;
    ASSERT_EQ(writes.events[i].position, before);
  }
  EXPECT_TRUE(filtered("--no-events").events.empty());
}

// What is left of a trace refers to memory that was allocated earlier, whose names are wanted.
TEST_F(Mgtrace, FiltersKeepTheAllocationsThatAreAlive) {
  Whole trace;
  trace.header.processors = 2;
  trace.header.sites.resize(2);
  trace.header.names = {"", "freed", "live", "again", "late"};
  for (uint64_t i = 0; i < 5000; ++i) trace.references.push_back({0x1000 + 8 * (i % 64), 1, 0, Access::kRead, 8});
  const auto event = [&](uint64_t position, EventKind kind, uint64_t address, uint32_t name) {
    trace.events.push_back({position, address, name == 0 ? 0u : 64u, name, 0, 1, kind});
  };
  event(0, EventKind::kAllocate, 0x2000, 1);
  event(0, EventKind::kStart, 0, 0);
  event(10, EventKind::kAllocate, 0x1000, 2);
  event(2000, EventKind::kFree, 0x2000, 0);
  event(2500, EventKind::kAllocate, 0x2000, 3);
  event(4200, EventKind::kAllocate, 0x3000, 4);
  write_file(directory_ / "t", trace, {.block_references = 100});
  const auto names_of = [&](const std::string& options) {
    const Whole out = filtered(options);
    std::vector<std::string> names;
    for (const Event& found : out.events)
      if (found.kind == EventKind::kAllocate)
        names.push_back(fmt::format("{} at {}", out.header.names[found.name], found.position));
    return names;
  };
  EXPECT_THAT(names_of("--references 4000-"), ElementsAre("live at 0", "again at 0", "late at 200"));
  EXPECT_THAT(names_of("--references 2490-"), ElementsAre("live at 0", "again at 10", "late at 1710"));
  EXPECT_THAT(names_of("--references 1000-1500 --processors 0"), ElementsAre("freed at 0", "live at 0"));
  EXPECT_THAT(names_of("--references 4000- --no-events"), ElementsAre());
}

// Two processors with a counter each in one allocation, `apart` bytes from each other.
Whole counters(uint64_t apart) {
  Whole trace;
  trace.header.processors = 2;
  trace.header.names = {"", "counters"};
  trace.header.sites = {{}, {"/src/count.c", "main", 7}, {"/src/count.c", "count", 3}};
  for (uint64_t i = 0; i < 2000; ++i) {
    const auto processor = static_cast<ProcessorId>(i % 2);
    trace.references.push_back({0x10000 + apart * processor, 2, processor, Access::kWrite, 8});
  }
  trace.events.push_back({0, 0x10000, apart + 8, 1, 1, 0, EventKind::kAllocate});
  return trace;
}

TEST_F(Mgtrace, SharingNamesTheDataAndWhatWouldHelp) {
  write_file(directory_ / "broken", counters(8), {});
  write_file(directory_ / "repaired", counters(64), {});
  const Run broken = run("sharing broken");
  EXPECT_EQ(broken.status, 0);
  // Each write but each processor's first asks for the line in vain, at 51 ns.
  EXPECT_THAT(
      broken.text,
      HasSubstr(
          "False sharing: 1,998 of 1,999 moves of written lines are useless, an estimated 102 us: 97 % of what all "
          "references cost."));
  EXPECT_THAT(broken.text, HasSubstr("1  counters, of count.c:7 (main), 16 bytes\n"));
  EXPECT_THAT(broken.text, HasSubstr("bytes 0-7 "));
  EXPECT_THAT(broken.text, HasSubstr("bytes 8-15 "));
  EXPECT_THAT(broken.text,
              HasSubstr("count.c:3 (count) wants the line that count.c:3 (count) has written: 1,998 times"));
  EXPECT_THAT(broken.text, HasSubstr("repair: give each of these a line of its own"));
  const Run repaired = run("sharing repaired");
  EXPECT_EQ(repaired.status, 0);
  EXPECT_THAT(repaired.text, HasSubstr("No false sharing"));
  // In a line of 128 bytes the two meet again.
  EXPECT_THAT(
      run("sharing repaired --line 128").text,
      HasSubstr("False sharing: 1,998 of 1,999 moves of written lines are useless, an estimated 102 us: 97 % of "));
  EXPECT_EQ(run("sharing broken argument").text, "mgtrace: 'broken' is a trace, and has no arguments\n");
  EXPECT_EQ(run("sharing").text, "mgtrace: give a trace, or a program and its arguments\n");
  EXPECT_EQ(nlohmann::json::parse(run("sharing broken --json").text)["schema"], "mgtrace-analysis");

  const Run compared = run("compare broken repaired");
  EXPECT_EQ(compared.status, 0);
  EXPECT_THAT(compared.text, testing::ContainsRegex("counters \\(count.c\\) +1,998 +0 +-100 %"));
  EXPECT_THAT(compared.text,
              HasSubstr("The second has 1,999 fewer moves: an estimated 102 us of all processors' time saved."));
  EXPECT_THAT(run("compare repaired broken").text, HasSubstr("The second has 1,999 more moves"));
  EXPECT_THAT(run("compare broken broken").text, HasSubstr("Both move lines equally often."));
  EXPECT_EQ(run("compare broken nothing").status, 2);
}

TEST_F(Mgtrace, MapsSayWhereThreadsRun) {
  write_file(directory_ / "t", counters(8), {});
  const std::string with_cores = run("sharing t --map 0-1:0").text;
  EXPECT_THAT(with_cores, HasSubstr("2 processors on 2 cores of 1 nodes"));
  EXPECT_THAT(with_cores, HasSubstr("1,998 of 1,999 moves of written lines are useless"));
  EXPECT_THAT(with_cores, HasSubstr("\n0 of the useless moves are between nodes"));
  EXPECT_THAT(with_cores, HasSubstr("written by core 1"));
  const std::string apart = run("sharing t --map 0:0,1:1").text;
  EXPECT_THAT(apart, HasSubstr("\n1,998 of the useless moves are between nodes"));
  EXPECT_THAT(apart, HasSubstr("1,998 useless moves, 102 us, 1,998 of them between nodes; 0 useful ones"));
  // Threads of one core have one cache.
  EXPECT_THAT(run("sharing t --map 0,1:0.0").text, HasSubstr("No false sharing"));
  EXPECT_THAT(run("sharing t").text, testing::Not(HasSubstr("between nodes")));

  // Two sockets, whose threads share their memory: nothing is remote within one.
  const auto mcpr = [&](const std::string& options) {
    const Run result = run("analyze t --block-size 4K --machine two-socket --json - " + options);
    EXPECT_EQ(result.status, 0) << result.text;
    return nlohmann::json::parse(result.text)["machines"][0]["results"][0]["mcpr"].get<double>();
  };
  EXPECT_EQ(mcpr("--map 0-1:0"), 1);
  EXPECT_GT(mcpr("--map block:2"), 1);
  EXPECT_EQ(mcpr("--map block:2"), mcpr(""));
  // Nodes and cores beside each other, and everything else that a study has.
  const Run all =
      run("analyze t --block-size 64,4K --map cyclic:1x2 --all-machines --policy all --false-sharing --tlb all "
          "--perturb 1");
  EXPECT_EQ(all.status, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("mapped to 2 cores of 1 nodes"));

  for (const std::string map : {"0:0", "0-2:0", "0-1", "block:0", "0-1:0.x", "''"}) {
    for (const std::string command : {"sharing t --map ", "analyze t --map ", "compare t t --map "}) {
      const Run bad = run(command + map);
      EXPECT_EQ(bad.status, 2) << command << map;
      EXPECT_THAT(bad.text, testing::ContainsRegex("^mgtrace: .*map")) << command << map;
    }
  }
  spill(directory_ / "one.json", R"({"name": "one", "processors": 2, "block_size": 64, "R": 100, "memory": "node"})");
  Whole many = counters(8);
  many.header.processors = 4;
  many.references.push_back({0x20000, 2, 3, Access::kRead, 8});
  write_file(directory_ / "many", many, {});
  EXPECT_THAT(run("analyze many --machine ./one.json").text,
              HasSubstr("the trace has 4 threads, and machine 'one' 2 processors; say with --map"));
  EXPECT_EQ(run("analyze many --machine ./one.json --map block:2").status, 0);
  EXPECT_THAT(run("analyze many --machine ./one.json --map block:4").text,
              HasSubstr("the map has 4 nodes, and machine 'one' 2"));
}

TEST_F(Mgtrace, CachesAnswerBeforeMemoriesDo) {
  // One processor reads four lines in turn, ten times.
  Whole trace;
  trace.header.processors = 2;
  for (uint64_t i = 0; i < 40; ++i) trace.references.push_back({0x10000 + 64 * (i % 4), 0, 0, Access::kRead, 8});
  write_file(directory_ / "t", trace, {});
  const auto caches = [&](const std::string& options) {
    const Run result = run("analyze t --machine numa --json - --caches " + options);
    EXPECT_EQ(result.status, 0) << result.text;
    return nlohmann::json::parse(result.text);
  };
  // Two lines: each is gone when it is wanted again. Four lines: each is fetched once.
  const auto small = caches("128:2")["caches"];
  EXPECT_EQ(small["misses"], 40);
  EXPECT_EQ(small["levels"][0]["hits"], 0);
  EXPECT_EQ(small["own"]["first"], 4);
  EXPECT_EQ(small["own"]["replaced"], 36);
  const auto large = caches("256:4");
  EXPECT_EQ(large["caches"]["misses"], 4);
  EXPECT_EQ(large["caches"]["levels"][0]["hits"], 36);
  EXPECT_EQ(large["machines"][0]["references"], 4);
  // What the core's own level lacks, the node's has: all but the first time.
  const auto both = caches("128:2,shared:256:4")["caches"];
  EXPECT_EQ(both["levels"][1]["hits"], 36);
  EXPECT_EQ(both["misses"], 4);
  // In lines of 128 bytes there are two of them.
  EXPECT_EQ(caches("256:2 --cache-line 128")["caches"]["misses"], 2);
  EXPECT_TRUE(caches("none")["caches"].is_null());
  const std::string text = run("analyze t --machine numa --caches 128:2,shared:256:4").text;
  EXPECT_THAT(text, HasSubstr("Caches with lines of 64 bytes; private references hit"));
  EXPECT_THAT(text, testing::ContainsRegex("a node's +256 +4 +36 \\(90%\\)"));
  EXPECT_THAT(text, testing::ContainsRegex("memory +4 \\(10%\\)"));
  EXPECT_THAT(
      text,
      HasSubstr("4 times for the first time, 36 times because they had replaced them, 0 times because another core"));
  EXPECT_THAT(text, HasSubstr("no block ever moves), of references that miss the caches"));

  for (const std::string command : {"analyze t", "sharing t", "compare t t"}) {
    const Run bad = run(command + " --caches 48K");
    EXPECT_EQ(bad.status, 2) << command;
    EXPECT_THAT(bad.text, HasSubstr("mgtrace: '48K' is no level of a cache: give SIZE:WAYS or shared:SIZE:WAYS"))
        << command;
  }
  EXPECT_THAT(run("analyze t --caches today --cache-line 48").text, HasSubstr("48"));
  EXPECT_EQ(run("analyze t --caches today --cache-line 48").status, 2);
  EXPECT_THAT(run("analyze t --caches shared:1M:4 --machine cc").text,
              HasSubstr("machine 'cc' has a memory for each core, and the caches have no level of a core"));
  EXPECT_THAT(run("sharing t --machine numa --caches today").text,
              HasSubstr("the machine 'numa' moves blocks between nodes, and its lines are not those of --caches"));
}

// Two counters share a line, but each processor reads so much in between that its small cache has replaced the line anyway.
TEST_F(Mgtrace, SharingLeavesOutLinesThatCachesReplace) {
  Whole trace = counters(8);
  std::vector<Reference> references;
  for (const Reference& counter : trace.references) {
    references.push_back(counter);
    for (uint64_t line = 0; line < 2; ++line)
      references.push_back({0x20000 + 0x1000 * counter.processor + 64 * line, 2, counter.processor, Access::kRead, 8});
  }
  trace.references = references;
  write_file(directory_ / "t", trace, {});
  const std::string unlimited = run("sharing t --caches none").text;
  EXPECT_THAT(unlimited, HasSubstr("1,998 of 1,999 moves of written lines are useless"));
  EXPECT_THAT(unlimited, testing::Not(HasSubstr("Each core has caches")));
  const std::string today = run("sharing t").text;
  EXPECT_THAT(today, HasSubstr("1,998 of 1,999 moves of written lines are useless"));
  EXPECT_THAT(
      today, HasSubstr("Each core has caches of 48 KiB (12 ways), 1280 KiB (20 ways); they replace none of the lines"));
  // Only the second processor's first reference to the line is a move: it is cold.
  const std::string small = run("sharing t --caches 128:2").text;
  EXPECT_THAT(
      small,
      HasSubstr("Each core has caches of 128 bytes (2 ways); 1,998 fetches of lines that they had replaced do not"));
  EXPECT_THAT(small, HasSubstr("No false sharing"));
  const auto json = nlohmann::json::parse(run("sharing t --caches 128:2 --json").text);
  EXPECT_EQ(json["false_sharing"]["attribution"]["replaced"], 1998);
  EXPECT_EQ(json["false_sharing"]["attribution"]["moves"]["false"], 0);
}

// Counters want blocks of a word; a table that one fills and the other reads wants large ones.
TEST_F(Mgtrace, EachAllocationHasABestBlockSize) {
  Whole trace = counters(8);
  trace.header.names.push_back("table");
  trace.events.push_back({0, 0x20000, 4096, 2, 2, 0, EventKind::kAllocate});
  for (const ProcessorId processor : {ProcessorId{0}, ProcessorId{1}})
    for (uint64_t at = 0; at < 4096; at += 8)
      trace.references.push_back({0x20000 + at, 2, processor, processor == 0 ? Access::kWrite : Access::kRead, 8});
  write_file(directory_ / "t", trace, {});
  const std::string options = "analyze t --machine cc --block-size 8,4K --variable-blocks";
  const Run result = run(options + " --json -");
  ASSERT_EQ(result.status, 0) << result.text;
  const auto blocks = nlohmann::json::parse(result.text)["variable_blocks"][0];
  ASSERT_EQ(blocks["groups"].size(), 2u);
  for (const auto& group : blocks["groups"]) {
    const bool is_table = group["name"] == "table";
    EXPECT_EQ(group["block_size"], is_table ? 4096 : 8) << group;
    EXPECT_EQ(group["references"], is_table ? 1024 : 2000);
  }
  // The counters never move in blocks of their own; the table does once.
  for (const auto& group : blocks["groups"]) {
    if (group["name"] == "counters") {
      EXPECT_EQ(group["excess"], 0);
    }
  }
  for (const auto& size : blocks["block_sizes"]) EXPECT_LT(blocks["mcpr"], size["separate_mcpr"]);
  const std::string text = run(options).text;
  EXPECT_THAT(text, HasSubstr("Blocks of several sizes on cc: MCPR "));
  EXPECT_THAT(text, testing::ContainsRegex("counters +count.c:7[^\n]* 2000 +8 B? +0 "));
  EXPECT_THAT(
      run(options + " --caches today").text,
      HasSubstr(
          "mgtrace: blocks of several sizes are computed without caches; leave --caches or --variable-blocks out"));
}

TEST_F(Mgtrace, ContentionHasAPrice) {
  write_file(directory_ / "t", counters(8), {});
  const auto result_of = [&](const std::string& options) {
    const Run result = run("analyze t --block-size 4K --json - --machine " + options);
    EXPECT_EQ(result.status, 0) << result.text;
    return nlohmann::json::parse(result.text)["machines"][0]["results"][0];
  };
  EXPECT_TRUE(result_of("numa")["contended_mcpr"].is_null());
  const auto numa = result_of("numa --contention");
  EXPECT_GT(numa["contended_mcpr"], numa["mcpr"]);
  // Moves of lines between caches hold no memory for each byte: nobody waits.
  const auto lines = result_of("cache-lines --contention");
  EXPECT_GT(lines["mcpr"], 1);
  EXPECT_NEAR(lines["contended_mcpr"].get<double>(), lines["mcpr"].get<double>(), 1e-9);
  EXPECT_THAT(run("analyze t --contention").text, HasSubstr("MCPR with"));
  const std::string otherwise = run("analyze t").text;
  EXPECT_THAT(otherwise, testing::Not(HasSubstr("MCPR with")));
  // Who names no machine asks about those of today.
  EXPECT_THAT(otherwise,
              testing::AllOf(HasSubstr("cache-lines"), HasSubstr("two-socket"), testing::Not(HasSubstr("dsm"))));
}

// Two processors write words of their own in one block. With a lock for each, neither has to hear of the other; with one for
// both, each has to, every time.
TEST_F(Mgtrace, IntervalsEndAtLocks) {
  for (const bool one_lock : {false, true}) {
    Whole trace = counters(8);
    trace.events.clear();
    for (uint64_t i = 0; i < trace.references.size(); ++i) {
      const ProcessorId processor = trace.references[i].processor;
      const uint64_t lock = 0x1000 + (one_lock ? 0 : 64 * processor);
      trace.events.push_back({i, lock, 0, 0, 0, processor, EventKind::kAcquire});
      trace.events.push_back({i + 1, lock, 0, 0, 0, processor, EventKind::kRelease});
    }
    write_file(directory_ / (one_lock ? "one" : "own"), trace, {});
  }
  const auto saved = [&](const std::string& name) {
    const Run result = run("analyze --machine cc --block-size 64 --false-sharing --json - " + name);
    EXPECT_EQ(result.status, 0) << result.text;
    return nlohmann::json::parse(result.text)["false_sharing"]["block_sizes"][0];
  };
  EXPECT_EQ(saved("own")["lock_interval_moves"], 1998);
  EXPECT_EQ(saved("one")["lock_interval_moves"], 0);
  EXPECT_EQ(saved("one")["interval_moves"], 1998);
  write_file(directory_ / "none", counters(8), {});
  EXPECT_TRUE(saved("none")["lock_interval_moves"].is_null());
  EXPECT_THAT(run("analyze own --machine cc --block-size 64 --false-sharing").text, HasSubstr("by locks"));
}

TEST_F(Mgtrace, RepairsWhatWasCutOff) {
  const Whole trace = some_trace();
  write_file(directory_ / "whole", trace, {.block_references = 1000});
  const std::string bytes = slurp(directory_ / "whole");
  spill(directory_ / "t", bytes.substr(0, bytes.size() * 2 / 3));
  const Run refused = run("filter t -o out");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.text, HasSubstr("cut off"));
  EXPECT_EQ(run("info t").status, 2);
  const Whole repaired = filtered("--repair");
  EXPECT_EQ(repaired.error, "");
  EXPECT_GT(repaired.references.size(), 1000u);
  EXPECT_TRUE(begins_with(trace, repaired));
  EXPECT_EQ(run("info --full out").status, 0);
}

TEST_F(Mgtrace, BadUsageIsASentenceAndStatus2) {
  write_file(directory_ / "t", some_trace());
  const std::string before = slurp(directory_ / "t");
  for (const std::string arguments :
       {"", "bogus", "info", "info nothing", "filter t", "filter t -o t", "filter t -o t --force",
        "filter t -o u --processors 9999", "filter t -o u --references 5", "filter t -o u --references 7-7",
        "filter t -o u --addresses 0xg-", "filter t -o u --reads --writes", "filter t -o u --level 20", "import t -o u",
        "import t --format csv -o u", "import none.csv -o u"}) {
    const Run result = run(arguments);
    EXPECT_EQ(result.status, 2) << arguments << result.text;
    EXPECT_THAT(result.text, testing::StartsWith("mgtrace: ")) << arguments;
  }
  EXPECT_EQ(slurp(directory_ / "t"), before);
  EXPECT_THAT(directory_.names(), ElementsAre("t"));
}

}  // namespace
}  // namespace multigrain::trace
