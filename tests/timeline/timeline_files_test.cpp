// The two files of a time line: what a reader finds in them, and how large the page gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "timeline/module/files.h"

namespace multigrain::timeline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

WrittenRun small_run() {
  WrittenRun run;
  run.program = "a </script> \"program\"";
  run.nodes = 2;
  run.protocol = "mgs";
  run.clock = "wall";
  run.network = "ideal";
  run.message_name = [](uint8_t type) -> const char* { return type == 1 ? "READ" : nullptr; };
  run.tracks = {
      {.node = 0,
       .owner = Owner::kProcessor,
       .number = 0,
       .least = 0,
       .one_in = 1,
       .left_out = 0,
       .events =
           {{.begin = 0, .duration = 1500, .what = 0},
            {.begin = 1400, .duration = 700, .key = 0x200000001000, .site = 0x1234, .kind = Kind::kFault, .what = 1},
            {.begin = 1500, .duration = 500, .what = 1},
            {.begin = 1600, .key = 0, .kind = Kind::kSend, .what = 1, .peer = 1, .bytes = 64},
            {.begin = 2000, .key = 1, .kind = Kind::kSend, .what = 9, .peer = 1, .bytes = 8}}},
      {.node = 1,
       .owner = Owner::kService,
       .number = 1,
       .least = 1000,
       .one_in = 1,
       .left_out = 17,
       .events = {
           {.begin = 1700, .duration = 100, .key = 0, .kind = Kind::kHandler, .what = 1, .peer = 0, .bytes = 64}}}};
  return run;
}

// The status of a node that knows nothing of the program.
const NodeStatus& empty_status() {
  static const auto status = std::make_unique<NodeStatus>();
  return *status;
}

std::vector<json> of_kind(const json& trace, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

TEST(TraceEvents, HaveARowForEachTrackAndOneForItsScopes) {
  const WrittenRun run = small_run();
  RunNames names(empty_status());
  const json trace = json::parse(trace_events(run, names));
  std::vector<std::string> rows;
  for (const json& event : of_kind(trace, "M"))
    if (event["name"] == "thread_name") rows.push_back(event["args"]["name"]);
  EXPECT_THAT(rows, testing::ElementsAre("processor 0", "processor 0: faults, calls, messages", "service of node 1",
                                         "service of node 1: faults, calls, messages"));
  EXPECT_EQ(trace["otherData"]["program"], run.program);
}

TEST(TraceEvents, HaveTimesInMicroseconds) {
  RunNames names(empty_status());
  const json trace = json::parse(trace_events(small_run(), names));
  const auto slices = of_kind(trace, "X");
  ASSERT_FALSE(slices.empty());
  EXPECT_EQ(slices[0]["name"], "user");
  EXPECT_DOUBLE_EQ(slices[0]["dur"], 1.5);
  EXPECT_EQ(slices[1]["name"], "write fault: shared memory");
  EXPECT_EQ(slices[1]["args"]["address"], "0x200000001000");
  EXPECT_DOUBLE_EQ(slices[1]["ts"], 1.4);
}

TEST(TraceEvents, HaveAnArrowForAMessageOfWhichBothEndsAreKept) {
  RunNames names(empty_status());
  const json trace = json::parse(trace_events(small_run(), names));
  const auto begins = of_kind(trace, "s"), ends = of_kind(trace, "f");
  ASSERT_EQ(begins.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(begins[0]["id"], ends[0]["id"]);
  EXPECT_EQ(begins[0]["name"], "READ");
  EXPECT_EQ(ends[0]["pid"], 1);
}

TEST(TraceEvents, SayWhatIsLeftOut) {
  RunNames names(empty_status());
  EXPECT_THAT(trace_events(small_run(), names),
              HasSubstr("17 events are left out: those shorter than 1000 ns, and some messages"));
}

TEST(Page, IsOneScriptWhateverTheProgramIsCalled) {
  RunNames names(empty_status());
  const std::string text = page(small_run(), names);
  const auto count = [&](const std::string& what) {
    size_t times = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  EXPECT_EQ(count("</script>"), 1u);
  EXPECT_THAT(text, Not(HasSubstr("/*DATA*/null")));
  EXPECT_THAT(text, Not(HasSubstr("http://")));
  EXPECT_THAT(text, Not(HasSubstr("https://")));
}

TEST(Page, HasLessThanTwoMegabytes) {
  WrittenRun run;
  run.program = "large";
  run.nodes = 8;
  run.processors_per_node = 4;
  run.message_name = [](uint8_t) -> const char* { return "READ"; };
  for (unsigned p = 0; p < 32; ++p) {
    WrittenTrack& track = run.tracks.emplace_back();
    track.node = p / 4;
    track.owner = Owner::kProcessor;
    track.number = p;
    for (uint64_t i = 0; i < 20'000; ++i) {
      const uint64_t begin = i * 100'003 + p;
      track.events.push_back(
          {.begin = begin, .duration = 50'000 + (i * 7919 + p) % 50'000, .what = static_cast<uint8_t>(i % 5)});
      track.events.push_back({.begin = begin + 10,
                              .duration = 1000 + i % 977,
                              .key = i * 4096,
                              .site = 0x1000 + i % 50,
                              .kind = Kind::kFault});
      track.events.push_back(
          {.begin = begin + 20, .key = i, .kind = Kind::kSend, .peer = static_cast<uint16_t>((p / 4 + 1) % 8)});
    }
  }
  RunNames names(empty_status());
  EXPECT_LT(page(run, names).size(), 2'000'000u);
}

}  // namespace
}  // namespace multigrain::timeline
