// The tables of costs (status/costs.h), and what a report makes of them: sums that stay right when a table is full, and advice
// that follows from the counts by the rules of docs/user/profile.md.
#include "profile/cost_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace multigrain {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Each call is a microsecond after the one before.
std::atomic<uint64_t> g_time{0};
uint64_t clock_of_test() {
  return g_time.fetch_add(1000) + 1000;
}

// Zeroes, as a node's status is.
class Costs : public testing::Test {
 protected:
  void SetUp() override {
    g_time = 0;
    costs::start(*table_, costs::Mode::kOn, 12, &clock_of_test, 1000);
  }
  void TearDown() override { costs::forget(); }
  costs::Rows rows() {
    costs::Rows result;
    costs::append_rows(*table_, 3, result);
    return result;
  }
  static void fault(uint64_t page, bool is_write = false, uint64_t site = 0x400000) {
    const costs::FaultScope scope(page, 8, page * 4096 + 8, is_write, site);
  }

  std::unique_ptr<costs::Table> table_ = std::make_unique<costs::Table>();
};

TEST_F(Costs, CountsFaultsByPageAndLine) {
  fault(7);
  fault(7, true);
  fault(8, false, 0x400010);
  costs::note_diff(7, 100);
  const costs::Rows found = rows();
  ASSERT_EQ(found.pages.size(), 2u);
  EXPECT_EQ(found.pages[0].page, 7u);
  EXPECT_EQ(found.pages[0].node, 3u);
  EXPECT_EQ(found.pages[0].reads, 1u);
  EXPECT_EQ(found.pages[0].writes, 1u);
  EXPECT_EQ(found.pages[0].last, 8u);
  EXPECT_EQ(found.pages[0].diffs, 1u);
  EXPECT_EQ(found.pages[0].diff_bytes, 100u);
  EXPECT_EQ(found.pages[0].ns, 2000u);
  ASSERT_EQ(found.lines.size(), 2u);
  EXPECT_EQ(found.lines[0].reads, 1u);
  EXPECT_EQ(found.lines[0].writes, 1u);
  EXPECT_EQ(found.lines[1].site, 0x400010u);
  EXPECT_EQ(found.lines[1].last, 8u * 4096 + 8);
}

TEST_F(Costs, CountsNothingUnlessSomebodyWantsIt) {
  table_->mode = costs::Mode::kOff;
  fault(7);
  costs::note_diff(7, 100);
  {
    const costs::WaitScope wait(1, 5, 0x400000);
  }
  EXPECT_EQ(g_time, 0u) << "nor does it read the clock";
  EXPECT_TRUE(rows().pages.empty());
  EXPECT_TRUE(rows().waits.empty());
}

TEST_F(Costs, APhaseForgetsWhatWasBeforeAndEnds) {
  fault(7);
  {
    const costs::WaitScope wait(2, 5, 0x400000);
    g_time += 1'000'000;
    costs::begin_phase(g_time);
  }
  ASSERT_EQ(rows().waits.size(), 1u);
  EXPECT_EQ(rows().waits[0].ns, 1000u) << "what was before the phase is no part of it";
  EXPECT_TRUE(rows().pages.empty());
  fault(9);
  costs::end_phase();
  fault(9);
  ASSERT_EQ(rows().pages.size(), 1u);
  EXPECT_EQ(rows().pages[0].reads, 1u);
  costs::begin_phase(g_time);
  fault(9);
  EXPECT_EQ(rows().pages[0].reads, 1u);
}

TEST_F(Costs, LosesNothingWhenItIsFull) {
  constexpr uint64_t kFaults = 600'000;
  for (uint64_t i = 0; i < kFaults; ++i) fault(i * costs::PageGroup::kPages, false, 0x400000 + i);
  uint64_t pages = 0, lines = 0;
  const costs::Rows found = rows();
  for (const costs::PageRow& row : found.pages) pages += row.reads;
  for (const costs::LineRow& row : found.lines) lines += row.reads;
  EXPECT_EQ(pages, kFaults);
  EXPECT_EQ(lines, kFaults);
  EXPECT_EQ(found.pages.back().page, costs::kOtherPages);
  EXPECT_EQ(found.lines.front().site, 0u);
}

TEST_F(Costs, CountsOfManyThreadsAddUp) {
  constexpr uint64_t kThreads = 4, kFaults = 20'000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (uint64_t i = 0; i < kFaults; ++i) fault(i % 512, i % 2 == 0, 0x400000 + i % 64);
    });
  for (std::thread& thread : threads) thread.join();
  uint64_t pages = 0, lines = 0;
  const costs::Rows found = rows();
  for (const costs::PageRow& row : found.pages) pages += row.reads + row.writes;
  for (const costs::LineRow& row : found.lines) lines += row.reads + row.writes;
  EXPECT_EQ(found.pages.size(), 512u);
  EXPECT_EQ(found.lines.size(), 64u);
  EXPECT_EQ(pages, kThreads * kFaults);
  EXPECT_EQ(lines, kThreads * kFaults);
}

CostContext context() {
  CostContext context;
  context.nodes = 2;
  context.processors_ns = 1'000'000;
  context.command = {.options = {{"--nodes", "2"}, {"--procs-per-node", "2"}, {"--home", "blocked"}},
                     .program = {"./grid", "a b"}};
  context.address_of = [](uint64_t page) { return 0x10000000 + page * 4096; };
  context.home_of = [](uint64_t) { return std::optional(NodeId(0)); };
  context.is_by_lines = [](uint64_t) { return false; };
  return context;
}

const CostNames kNames{.block = [](uint64_t address) -> CostNames::Block {
                         if (address >= 0x10008000) return {.name = "the global bins (hist.c:18)"};
                         return {.name = "main at grid.c:52", .begin = 0x10000000, .size = 32768};
                       },
                       .instruction = [](uint64_t) { return std::string("relax at grid.c:17"); },
                       .call = [](uint64_t) { return std::string("relax at grid.c:20"); },
                       .object = [](uint32_t, uint64_t) { return std::string("lock of grid.c:31"); }};

TEST(CostReport, NamesMemoryByItsAllocationAndPutsTheSlowestFirst) {
  costs::Rows rows;
  rows.pages = {{.node = 0, .page = 1, .reads = 2, .ns = 100},
                {.node = 1, .page = 2, .reads = 3, .ns = 200},
                {.node = 1, .page = 8, .writes = 1, .ns = 900}};
  rows.lines = {{.node = 0, .site = 0x400000, .last = 0x10000000, .reads = 2, .ns = 100},
                {.node = 1, .site = 0x400000, .last = 0x10000000, .reads = 3, .ns = 200}};
  const CostReport report = make_cost_report(rows, context(), kNames);
  ASSERT_EQ(report.memory.size(), 2u);
  EXPECT_EQ(report.memory[0].name, "the global bins (hist.c:18)");
  EXPECT_EQ(report.memory[1].name, "main at grid.c:52");
  EXPECT_EQ(report.memory[1].reads, 5u);
  EXPECT_EQ(report.memory[1].pages, 2u);
  EXPECT_EQ(report.memory[1].nodes, 2u);
  EXPECT_EQ(report.memory[1].bytes, 32768u);
  ASSERT_EQ(report.lines.size(), 1u);
  EXPECT_EQ(report.lines[0].place, "relax at grid.c:17");
  EXPECT_EQ(report.lines[0].memory, "main at grid.c:52");
  EXPECT_EQ(report.lines[0].nodes, 2u);
  EXPECT_EQ(report.lines[0].advice.sentence, report.memory[1].advice.sentence);
  const std::string text = render_costs(report, 1'000'000);
  EXPECT_THAT(text, HasSubstr("main at grid.c:52: 32768 bytes"));
  EXPECT_THAT(text, HasSubstr("relax at grid.c:17, main at grid.c:52"));
}

TEST(CostReport, CountsPagesByTheirWriters) {
  costs::Rows rows;
  rows.pages = {{.node = 0, .page = 0, .writes = 1},
                {.node = 0, .page = 1, .diffs = 1, .diff_bytes = 8},
                {.node = 1, .page = 1, .writes = 1},
                {.node = 1, .page = 2, .writes = 1},
                {.node = 1, .page = 3, .reads = 1}};
  const CostReport report = make_cost_report(rows, context(), kNames);
  ASSERT_EQ(report.memory.size(), 1u);
  const MemoryCost& cost = report.memory[0];
  EXPECT_EQ(cost.pages, 4u);
  EXPECT_EQ(cost.visits, 5u);
  EXPECT_EQ(cost.written, 3u);
  EXPECT_EQ(cost.written_by_many, 1u);
  EXPECT_EQ(cost.written_remotely, 1u) << "page 2, whose home is node 0";
}

MemoryCost cost_of(uint64_t reads, uint64_t writes, uint64_t pages) {
  MemoryCost cost;
  cost.reads = reads;
  cost.writes = writes;
  cost.pages = pages;
  cost.visits = pages;
  cost.nodes = 2;
  return cost;
}

TEST(Advice, OfFalseSharingIsToPad) {
  MemoryCost cost = cost_of(100, 100, 10);
  cost.written = 10;
  cost.written_by_many = 6;
  cost.diffs = 100;
  cost.diff_bytes = 800;
  const Advice advice = advise(cost, context());
  EXPECT_THAT(advice.sentence,
              StartsWith("6 of its 10 written pages are written by several nodes, 8 of 4096 bytes at a time"));
  EXPECT_THAT(advice.sentence, HasSubstr("pad it to 4096 bytes"));
  EXPECT_EQ(advice.command, "mgrun --nodes 2 --procs-per-node 2 --home blocked --protocol dszoom ./grid 'a b'");
  CostContext mgs = context();
  mgs.protocol = ProtocolKind::kMgs;
  EXPECT_THAT(advise(cost, mgs).command, HasSubstr("--protocol hlrc"));
  mgs.page_size = 16384;
  EXPECT_THAT(advise(cost, mgs).command, HasSubstr("--page-size 4096"));
}

TEST(Advice, OfPagesThatAreRewrittenIsNotToPad) {
  MemoryCost cost = cost_of(100, 100, 10);
  cost.written = 10;
  cost.written_by_many = 10;
  cost.diffs = 10;
  cost.diff_bytes = 40000;
  EXPECT_THAT(advise(cost, context()).sentence, HasSubstr("the data itself moves"));
  EXPECT_THAT(advise(cost, context()).command, HasSubstr("--protocol mgs"));
}

TEST(Advice, OfPagesAtHomeElsewhereIsAnotherPlacement) {
  MemoryCost cost = cost_of(10, 100, 10);
  cost.written = 10;
  cost.written_remotely = 5;
  EXPECT_EQ(advise(cost, context()).command, "mgrun --nodes 2 --procs-per-node 2 --home first-touch ./grid 'a b'");
  CostContext touched = context();
  touched.home = HomePolicy::kFirstTouch;
  EXPECT_THAT(advise(cost, touched).command, HasSubstr("--home blocked"));
  cost.written_remotely = 4;
  EXPECT_THAT(advise(cost, context()).command, Not(HasSubstr("--home first-touch")));
}

TEST(Advice, OfReadingIsToReadAheadUntilThatIsDone) {
  const MemoryCost once = cost_of(16, 0, 16), often = cost_of(160, 0, 16);
  EXPECT_THAT(advise(once, context()).sentence, HasSubstr("this is the first use"));
  EXPECT_THAT(advise(often, context()).sentence, StartsWith("each of its pages is fetched 10.0 times"));
  EXPECT_THAT(advise(often, context()).command, HasSubstr("--prefetch 64"));
  CostContext ahead = context();
  ahead.prefetch = 64;
  EXPECT_THAT(advise(often, ahead).command, HasSubstr("--page-size 16384"));
  ahead.page_size = 65536;
  EXPECT_THAT(advise(often, ahead).command, HasSubstr("--timeline run.html"));
}

TEST(Advice, OfLocksSaysWhetherTheyCrossNodes) {
  ObjectOfWaits lock;
  lock.is_lock = true;
  lock.waits = 10;
  lock.fetched = 9;
  lock.nodes = 2;
  lock.ns = 100'000;
  EXPECT_THAT(advise(lock, context()).sentence, StartsWith("it came from another node 9 times in 10 waits"));
  lock.fetched = 1;
  EXPECT_THAT(advise(lock, context()).sentence, StartsWith("processors queue for it, 10.0 us at a time"));
}

TEST(Advice, OfBarriersSaysWhetherTheWorkIsUneven) {
  ObjectOfWaits barrier;
  barrier.is_barrier = true;
  barrier.waits = 10;
  barrier.ns = 100'000;
  barrier.longest_ns = 50'000;
  EXPECT_THAT(advise(barrier, context()).sentence, StartsWith("the longest wait is 5 times the mean"));
  barrier.longest_ns = 20'000;
  EXPECT_THAT(advise(barrier, context()).sentence, StartsWith("a wait takes 10.0 us in the mean"));
}

TEST(RunCommand, PutsAnOptionInThePlaceOfTheOldOne) {
  RunCommand command{.options = {{"--nodes", "2"}, {"--check", ""}}, .program = {"./it's", "x"}};
  EXPECT_EQ(command.with("--nodes", "4"), "mgrun --nodes 4 --check './it'\\''s' x");
  EXPECT_EQ(command.with("--home", "blocked"), "mgrun --nodes 2 --check --home blocked './it'\\''s' x");
}

}  // namespace
}  // namespace multigrain
