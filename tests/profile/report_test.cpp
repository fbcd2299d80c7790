// These test reports: exact sums after conversion, the text as a user sees it, and JSON that gives every number back.
#include "profile/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <vector>

namespace multigrain {
namespace {

constexpr double kTicksPerUs = 2000;

ProfileSnapshot snapshot_ms(std::array<uint64_t, kCategoryCount> ms) {
  ProfileSnapshot snapshot;
  for (size_t i = 0; i < ms.size(); ++i) snapshot.ticks[i] = ms[i] * 2'000'000;
  return snapshot;
}

void set(ProfileSnapshot& snapshot, Counter counter, uint64_t value) {
  snapshot.counters[static_cast<size_t>(counter)] = value;
}

std::vector<NodeReport> two_nodes() {
  std::vector<NodeReport> reports(2);
  reports[1].node = 1;
  for (unsigned node = 0; node < 2; ++node) {
    for (unsigned i = 0; i < 2; ++i) {
      ProfileSnapshot processor = snapshot_ms({80 - node, 5 + node, 3, 10, 2, 0});
      processor.sub_ticks = {1'000'000, 500'000};
      set(processor, Counter::kReadFaults, 10 * (node + 1) + i);
      set(processor, Counter::kBarriers, 4);
      processor.messages[0x10] = 7;
      processor.message_bytes[0x10] = 448;
      add_processor(reports[node], processor, kTicksPerUs);
    }
    ProfileSnapshot service = snapshot_ms({0, 0, 0, 0, 4, 96});
    set(service, Counter::kDiffsApplied, 3);
    add_service(reports[node], service, kTicksPerUs);
  }
  return reports;
}

RunDescription description() {
  return {.program = "jacobi",
          .nodes = 2,
          .processors_per_node = 2,
          .protocol = "mgs",
          .page_size = 4096,
          .network = "ideal",
          .machine = {},
          .access = "userfaultfd",
          .elapsed_ns = 100'000'000};
}

TEST(Report, SaysWithWhichSeedProcessorsStartedLate) {
  RunDescription run = description();
  run.clock = "counted";
  run.machine = "alewife";
  EXPECT_THAT(render_text(run, two_nodes()), ::testing::HasSubstr(", in counted time of the machine alewife\n"));
  EXPECT_FALSE(nlohmann::json::parse(render_json(run, two_nodes()))["run"].contains("seed"));
  run.seed = 3;
  run.perturb_ns = 20'500;
  EXPECT_THAT(
      render_text(run, two_nodes()),
      ::testing::HasSubstr(", in counted time of the machine alewife, seed 3 (processors start up to 20.5 us late)\n"));
  const auto json = nlohmann::json::parse(render_json(run, two_nodes()));
  EXPECT_EQ(json["run"]["seed"], 3);
  EXPECT_EQ(json["run"]["perturb_ns"], 20'500);
}

const char* name_of(uint8_t type) {
  return type == 0x10 ? "RREQ" : nullptr;
}

TEST(Report, ConversionKeepsTheSumExact) {
  std::mt19937_64 random(3);
  NodeReport report;
  for (unsigned i = 0; i < Config::kMaxProcessorsPerNode; ++i) {
    ProfileSnapshot snapshot;
    for (uint64_t& ticks : snapshot.ticks) ticks = random() >> (20 + random() % 40);
    add_processor(report, snapshot, 2112.007);
    const ThreadTimes& times = report.processor[i];
    EXPECT_EQ(std::accumulate(times.category_ns.begin(), times.category_ns.end(), uint64_t{0}), times.total_ns);
    EXPECT_NEAR(static_cast<double>(times.total_ns), static_cast<double>(snapshot.total_ticks()) / 2.112007, 2.0);
  }
  EXPECT_TRUE(check_report(report));
}

TEST(Report, ATimeStampSteppingBackGivesZeroNotAnEternity) {
  ProfileSnapshot snapshot = snapshot_ms({5, 0, 0, 0, 0, 0});
  snapshot.ticks[1] = static_cast<uint64_t>(-2000);
  NodeReport report;
  add_processor(report, snapshot, kTicksPerUs);
  EXPECT_EQ(report.processor[0].category_ns[1], 0u);
  EXPECT_EQ(report.processor[0].total_ns, 4'999'000u);
  EXPECT_EQ(report.processor[0].total_ns, report.processor[0].category_ns[0]);
}

TEST(Report, BadReportsAreRefused) {
  NodeReport report = two_nodes()[0];
  ASSERT_TRUE(check_report(report));
  report.version = 9;
  EXPECT_THAT(check_report(report).error().message, testing::HasSubstr("version 9"));
  report = two_nodes()[0];
  report.processors = 257;
  EXPECT_THAT(check_report(report).error().message, testing::HasSubstr("257 processors"));
  report = two_nodes()[0];
  report.node = Config::kMaxNodes;
  EXPECT_THAT(check_report(report).error().message, testing::HasSubstr("node 1024"));
  report = two_nodes()[0];
  ++report.processor[1].category_ns[0];
  EXPECT_THAT(check_report(report).error().message, testing::HasSubstr("does not add up"));
}

TEST(Report, TextIsWhatItShouldBe) {
  const std::string expected = R"(
jacobi: 4 processors on 2 nodes of 2, protocol mgs, pages of 4096 bytes, network ideal, access by userfaultfd
Elapsed: 100.000 ms. Where the processors' time went, in ms and % of each row's total:

processor node       total             user        data wait             lock          barrier         protocol
        0    0     100.000      80.000  80%       5.000   5%       3.000   3%      10.000  10%       2.000   2%
        1    0     100.000      80.000  80%       5.000   5%       3.000   3%      10.000  10%       2.000   2%
        2    1     100.000      79.000  79%       6.000   6%       3.000   3%      10.000  10%       2.000   2%
        3    1     100.000      79.000  79%       6.000   6%       3.000   3%      10.000  10%       2.000   2%
      sum          400.000     318.000  80%      22.000   6%      12.000   3%      40.000  10%       8.000   2%
  service    0       4.000       0.000   0%       0.000   0%       0.000   0%       0.000   0%       4.000 100%
  service    1       4.000       0.000   0%       0.000   0%       0.000   0%       0.000   0%       4.000 100%
(A node's service thread handles messages that no processor is waiting for; its total is the time awake.)

Of the sum: changing access rights 2.000 ms (0.5%), diffs 1.000 ms (0.2%).

Counters                                    sum       node 0       node 1
faults
  read faults                                62           21           41
pages
  diffs merged at home                        6            3            3
synchronisation
  barrier arrivals                           16            8            8
messages sent
  RREQ                                       28           14           14
  all                                        28           14           14
  all, bytes                               1792          896          896
)";
  EXPECT_EQ(render_text(description(), two_nodes(), name_of), expected);
}

RunDescription hosted(std::vector<NodeReport>& reports) {
  RunDescription run = description();
  run.is_hosted = true;
  reports.resize(2);
  reports[1].node = 1;
  for (uint16_t node = 0; node < 2; ++node) {
    ProfileSnapshot profile = snapshot_ms({60, 10, 20, 0, 4, 0, 6});
    set(profile, Counter::kSystemCalls, 30 + node);
    profile.messages[0x10] = 7;
    add_counters(reports[node], profile);
    ThreadRow row = make_row(profile, kTicksPerUs);
    row.node = node;
    row.tid = 4711 + node;
    run.threads.push_back(row);
  }
  ThreadRow shadows = make_row(snapshot_ms({0, 0, 0, 0, 0, 90, 10}), kTicksPerUs);
  shadows.kind = ThreadRow::Kind::kShadows;
  ThreadRow earlier = run.threads[1];
  earlier.kind = ThreadRow::Kind::kEarlier;
  add_row(earlier, run.threads[0]);
  run.threads.push_back(shadows);
  run.threads.push_back(earlier);
  return run;
}

TEST(Report, ThreadsOfAProgramAsItIsHaveRows) {
  std::vector<NodeReport> reports;
  const RunDescription run = hosted(reports);
  const std::string text = render_text(run, reports, name_of);
  EXPECT_THAT(text, testing::HasSubstr(R"(
   thread node       total             user        data wait            futex     system calls         protocol
     4711    0     100.000      60.000  60%      10.000  10%      20.000  20%       6.000   6%       4.000   4%
     4712    1     100.000      60.000  60%      10.000  10%      20.000  20%       6.000   6%       4.000   4%
   others    1     200.000     120.000  60%      20.000  10%      40.000  20%      12.000   6%       8.000   4%
      sum          400.000     240.000  60%      40.000  10%      80.000  20%      24.000   6%      16.000   4%
  shadows    0      10.000       0.000   0%       0.000   0%       0.000   0%      10.000 100%       0.000   0%
(others on node 1: 2 threads that had ended, without a row each.)
)"));
  EXPECT_THAT(text, testing::HasSubstr("  system calls                               61           30           31"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("barrier")));

  const auto json = nlohmann::json::parse(render_json(run, reports, name_of));
  EXPECT_EQ(json["sum"]["total_ns"], 400'000'000);
  ASSERT_EQ(json["nodes"][1]["threads"].size(), 2u);
  EXPECT_EQ(json["nodes"][1]["threads"][0]["thread"], 4712);
  EXPECT_EQ(json["nodes"][1]["threads"][0]["counters"]["system_calls"], 31);
  EXPECT_EQ(json["nodes"][1]["threads"][1]["threads"], 2);
  EXPECT_EQ(json["nodes"][0]["threads"][1]["kind"], "shadows");
}

TEST(Report, ARowThatDoesNotAddUpIsRefused) {
  std::vector<NodeReport> reports;
  ThreadRow row = hosted(reports).threads[0];
  EXPECT_TRUE(check_row(row));
  ++row.times.category_ns[1];
  EXPECT_FALSE(check_row(row));
  --row.times.category_ns[1];
  row.node = Config::kMaxNodes;
  EXPECT_FALSE(check_row(row));
}

TEST(Report, TextOfManyProcessorsKeepsToTheLine) {
  std::vector<NodeReport> reports(8);
  for (uint16_t node = 0; node < 8; ++node) {
    reports[node].node = node;
    for (unsigned i = 0; i < 4; ++i) {
      ProfileSnapshot profile = snapshot_ms({9'000'000, 1'000'000, 1'000'000, 1'000'000, 1'000'000, 0});
      set(profile, Counter::kDiffBytes, 99'999'999'999);
      add_processor(reports[node], profile, kTicksPerUs);
    }
    add_service(reports[node], snapshot_ms({0, 0, 0, 0, 1'000'000, 0}), kTicksPerUs);
  }
  RunDescription run = description();
  run.nodes = 8;
  run.processors_per_node = 4;
  const std::string text = render_text(run, reports);
  std::istringstream lines(text);
  std::string line;
  size_t table_width = 0;
  unsigned rows = 0;
  while (std::getline(lines, line)) {
    EXPECT_LE(line.size(), 120u) << line;
    if (line.starts_with("processor")) table_width = line.size();
    if (table_width != 0 && line.ends_with('%')) {
      EXPECT_EQ(line.size(), table_width) << line;
      ++rows;
    }
  }
  EXPECT_EQ(rows, 32u + 1 + 8);
  EXPECT_THAT(text, testing::HasSubstr("most a node"));
}

TEST(Report, JsonGivesEveryNumberBack) {
  const std::vector<NodeReport> reports = two_nodes();
  const auto json = nlohmann::json::parse(render_json(description(), reports, name_of));
  EXPECT_EQ(json["schema"], "multigrain-profile");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["run"]["page_size"], 4096);
  EXPECT_EQ(json["run"]["elapsed_ns"], 100'000'000);
  EXPECT_EQ(json["sum"]["total_ns"], 400'000'000);
  ASSERT_EQ(json["nodes"].size(), 2u);
  unsigned number = 0;
  for (size_t node = 0; node < 2; ++node) {
    const auto times_of = [](const nlohmann::json& from) {
      ThreadTimes times;
      times.total_ns = from["total_ns"];
      for (size_t i = 0; i < kCategoryCount; ++i)
        times.category_ns[i] = from[fmt::format("{}_ns", json_name(static_cast<Category>(i)))];
      times.sub_ns = {from["rights_ns"], from["diffs_ns"]};
      return times;
    };
    const auto same = [](const ThreadTimes& a, const ThreadTimes& b) {
      return a.total_ns == b.total_ns && a.category_ns == b.category_ns && a.sub_ns == b.sub_ns;
    };
    const nlohmann::json& from = json["nodes"][node];
    EXPECT_EQ(from["node"], node);
    ASSERT_EQ(from["processors"].size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(from["processors"][i]["processor"], number++);
      EXPECT_TRUE(same(times_of(from["processors"][i]), reports[node].processor[i]));
      const auto& counters = from["processors"][i]["counters"];
      ASSERT_EQ(counters.size(), kProcessorCounters.size());
      EXPECT_EQ(counters["read_faults"], 10 * (node + 1) + i);
      EXPECT_EQ(counters["barriers"], 4);
      EXPECT_EQ(counters["locks_remote"], 0);
    }
    EXPECT_TRUE(same(times_of(from["service"]), reports[node].service));
    ASSERT_EQ(from["counters"].size(), kCounterCount);
    for (size_t i = 0; i < kCounterCount; ++i)
      EXPECT_EQ(from["counters"][json_name(static_cast<Counter>(i))], reports[node].counters[i]);
    ASSERT_EQ(from["messages"].size(), 1u);
    EXPECT_EQ(from["messages"][0]["type"], 0x10);
    EXPECT_EQ(from["messages"][0]["name"], "RREQ");
    EXPECT_EQ(from["messages"][0]["count"], 14);
    EXPECT_EQ(from["messages"][0]["bytes"], 896);
  }
}

TEST(Report, JsonSurvivesANameThatIsNotText) {
  RunDescription run = description();
  run.program = "bad\xff\"name";
  const auto json = nlohmann::json::parse(render_json(run, two_nodes()));
  EXPECT_EQ(json["run"]["program"], "bad\xef\xbf\xbd\"name");
}

}  // namespace
}  // namespace multigrain
