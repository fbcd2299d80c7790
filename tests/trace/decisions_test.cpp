// The log of a run's decisions: its file, and whether it fits its trace.
#include "trace/model/decisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "coherence/placement/states.h"
#include "trace/model/policy_costs.h"
#include "trace/model_cases.h"

namespace multigrain::trace {
namespace {

using placement::Location;
using placement::State;
using testing::HasSubstr;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kNumber = 0x200000000;

// A run of two nodes that pass one page to and fro, and its trace: node 0 writes, node 1 reads, node 1 writes, node 0 reads.
class DecisionsTest : public testing::Test {
 protected:
  DecisionsTest() {
    log_.nodes = 2;
    log_.page_size = kPage;
    log_.policy = "ace";
    log_.program = "a test";
    ask(0, Access::kWrite, placement::Placement::kReadOnly, 0);
    right(record::EventKind::kGranted, 0, State::kWrite);
    refer(0, Access::kWrite);
    ask(1, Access::kRead, placement::Placement::kLocalWritable, 1);
    right(record::EventKind::kLowered, 0, State::kRead);
    right(record::EventKind::kGranted, 1, State::kRead);
    refer(1, Access::kRead);
    refer(0, Access::kRead);
    ask(1, Access::kWrite, placement::Placement::kReadOnly, 3);
    right(record::EventKind::kLowered, 0, State::kNone);
    right(record::EventKind::kGranted, 1, State::kWrite);
    refer(1, Access::kWrite);
    ask(0, Access::kRead, placement::Placement::kLocalWritable, 2);
    right(record::EventKind::kLowered, 1, State::kRead);
    right(record::EventKind::kGranted, 0, State::kRead);
    refer(0, Access::kRead);
    seal();
  }

  void ask(uint16_t node, Access access, placement::Placement placement, uint64_t holders,
           Location answer = Location::kLocal) {
    log_.events.push_back(
        {.position = references_.size(),
         .page = kNumber,
         .policy_page = 0,
         .now = references_.size() * 1000,
         .holders = holders,
         .node = node,
         .kind = record::EventKind::kDecided,
         .right = static_cast<uint8_t>(access == Access::kWrite ? placement::Access::kWrite : placement::Access::kRead),
         .answer = static_cast<uint8_t>(answer),
         .placement = static_cast<uint8_t>(placement)});
  }
  void right(record::EventKind kind, uint16_t node, State state) {
    log_.events.push_back({.position = references_.size(),
                           .page = kNumber,
                           .node = node,
                           .kind = kind,
                           .right = static_cast<uint8_t>(state)});
  }
  void refer(ProcessorId node, Access access) {
    references_.push_back({.address = kNumber * kPage + 8, .site = 0, .processor = node, .access = access, .size = 8});
  }
  void seal() {
    TraceDigest digest;
    for (const Reference& reference : references_) digest.add(reference);
    log_.references = references_.size();
    log_.digest = digest.value();
  }
  Result<RunPlacement> followed() {
    auto source = source_of(references_, 2);
    return follow(log_, source);
  }
  std::string problem() {
    const auto run = followed();
    return run ? "none" : run.error().message;
  }

  DecisionLog log_;
  std::vector<Reference> references_;
};

TEST_F(DecisionsTest, ThatFitArePricedAsTheSimulatorPricesThem) {
  const auto run = followed();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->decisions, 4u);
  EXPECT_EQ(run->writes, 2u);
  EXPECT_EQ(run->global_writes, 0u);
  EXPECT_EQ(run->unreferenced_moves, 0u);
  // The page moves for the first read of node 1, and for node 0's last; node 1's write leaves it where it is.
  EXPECT_EQ(run->parts, (CostParts{.local = 5, .remote_moves = 2}));
  Machine machine = find_machine("ace")->with_block_size(kPage);
  auto source = source_of(references_, 2);
  auto policy = policy_of_run(log_);
  ASSERT_TRUE(policy);
  const PolicyRun replay{machine, std::move(*policy)};
  const auto simulated = evaluate(source, {&replay, 1});
  ASSERT_TRUE(simulated) << simulated.error().message;
  EXPECT_EQ(simulated->front().parts, run->parts);
}

TEST_F(DecisionsTest, AMoveForNothingInTheTraceIsCounted) {
  ask(1, Access::kWrite, placement::Placement::kReadOnly, 3);
  right(record::EventKind::kLowered, 0, State::kNone);
  right(record::EventKind::kGranted, 1, State::kWrite);
  ask(0, Access::kWrite, placement::Placement::kLocalWritable, 2);
  right(record::EventKind::kLowered, 1, State::kNone);
  right(record::EventKind::kGranted, 0, State::kWrite);
  const auto run = followed();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->unreferenced_moves, 1u);
}

// The run's pages move between bursts as always. In a trace of bursts a page can only have moved once, before a reference that finds
// it where it was not.
TEST_F(DecisionsTest, WhatMovesBetweenBurstsHasMovedOnceWhenItIsUsed) {
  for (PlacementEvent& event : log_.events) event.between_bursts = event.position == 1 ? 1 : 0;
  const auto used = followed();
  ASSERT_TRUE(used) << used.error().message;
  EXPECT_EQ(used->parts, (CostParts{.local = 5, .remote_moves = 2}));
  EXPECT_EQ(used->moves_between_bursts, 0u);
  // To node 1 and back, with no reference in between.
  ask(1, Access::kWrite, placement::Placement::kReadOnly, 3);
  right(record::EventKind::kLowered, 0, State::kNone);
  right(record::EventKind::kGranted, 1, State::kWrite);
  ask(0, Access::kWrite, placement::Placement::kLocalWritable, 2);
  right(record::EventKind::kLowered, 1, State::kNone);
  right(record::EventKind::kGranted, 0, State::kWrite);
  for (PlacementEvent& event : log_.events) event.between_bursts = event.position == 5 ? 1 : 0;
  const auto unused = followed();
  ASSERT_TRUE(unused) << unused.error().message;
  EXPECT_EQ(unused->parts, (CostParts{.local = 5, .remote_moves = 2}));
  EXPECT_EQ(unused->moves_between_bursts, 1u);
  EXPECT_EQ(unused->unreferenced_moves, 0u);
  refer(0, Access::kWrite);
  seal();
  const auto back = followed();
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->parts, (CostParts{.local = 6, .remote_moves = 3}));
  EXPECT_EQ(back->moves_between_bursts, 0u);
}

TEST_F(DecisionsTest, AReferenceWithoutTheRightIsRefused) {
  log_.events.erase(log_.events.begin() + 4);  // node 1's grant
  EXPECT_THAT(problem(),
              HasSubstr("a read to page 0x200000000000 by node 1 (reference 1 of the trace): the node has no right"));
}

TEST_F(DecisionsTest, AWriteToACopyIsRefused) {
  references_[2].access = Access::kWrite;
  EXPECT_THAT(problem(),
              HasSubstr("a write to page 0x200000000000 by node 0 (reference 2 of the trace): the node has only a "
                        "copy to read there"));
}

TEST_F(DecisionsTest, RightsThatExcludeEachOtherAreRefused) {
  log_.events.erase(log_.events.begin() + 6);  // node 0 loses its copy
  EXPECT_THAT(problem(),
              HasSubstr("page 0x200000000000, event 6 (at reference 3): node 1 gets the page to write, while 2 nodes"));
}

TEST_F(DecisionsTest, ARightThatNobodyHasIsNotLost) {
  log_.events[3].node = 1;
  EXPECT_THAT(problem(), HasSubstr("event 3 (at reference 1): node 1 loses a right that it does not have"));
}

TEST_F(DecisionsTest, AnAnswerThatThePolicyDoesNotGiveIsRefused) {
  log_.policy = "global";
  EXPECT_THAT(problem(),
              HasSubstr("event 0 (at reference 0): the policy global answers GLOBAL to node 0, and the log says "
                        "LOCAL"));
  log_.policy = "competitive";
  EXPECT_THAT(problem(), HasSubstr("a policy that runs do not have"));
}

TEST_F(DecisionsTest, OfAnotherTraceAreRefused) {
  references_[0].address += 8;
  EXPECT_THAT(problem(), HasSubstr("the decisions are of another trace"));
  references_[0].address -= 8;
  EXPECT_EQ(problem(), "none");
  references_.pop_back();
  EXPECT_THAT(problem(), HasSubstr("the decisions are of another trace: theirs has 5 references"));
  auto source = source_of(references_, 3);
  EXPECT_THAT(follow(log_, source).error().message, HasSubstr("they are of 2 nodes, and the trace has 3 processors"));
}

TEST_F(DecisionsTest, ComeBackFromTheirFile) {
  const std::string path = testing::TempDir() + "/decisions_test.log";
  ASSERT_TRUE(write_decisions(path, log_));
  const auto back = read_decisions(path);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->events, log_.events);
  EXPECT_EQ(back->policy, "ace");
  EXPECT_EQ(back->digest, log_.digest);

  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const auto spill = [&](std::string_view text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
  };
  for (size_t length = 7; length < whole.size(); ++length) {
    spill(std::string_view(whole).substr(0, length));
    const auto torn = read_decisions(path);
    ASSERT_FALSE(torn) << length;
    EXPECT_THAT(torn.error().message, HasSubstr(path));
  }
  spill(std::string_view(whole).substr(0, whole.size() - 1));
  EXPECT_THAT(read_decisions(path).error().message,
              HasSubstr(fmt::format("end too early, at byte {}", whole.size() - 1)));
  // Every byte counts, but for those of the version, which make it another version's.
  for (size_t at = 8; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    spill(damaged);
    EXPECT_FALSE(read_decisions(path)) << at;
  }
  spill(whole + "more");
  EXPECT_THAT(read_decisions(path).error().message, HasSubstr("is something else"));
  spill("MGDECID9");
  EXPECT_THAT(read_decisions(path).error().message, HasSubstr("another version"));
  spill("something else entirely");
  EXPECT_THAT(read_decisions(path).error().message, HasSubstr("has no decisions of a run in it"));
  std::filesystem::remove(path);
  EXPECT_THAT(read_decisions(path).error().message, HasSubstr("cannot read"));
}

TEST_F(DecisionsTest, EventsThatAreNoneAreRefused) {
  const std::string path = testing::TempDir() + "/decisions_test_event.log";
  const auto problem_of = [&](auto change) {
    DecisionLog wrong = log_;
    change(wrong);
    EXPECT_TRUE(write_decisions(path, wrong));
    const auto read = read_decisions(path);
    return read ? std::string("none") : read.error().message;
  };
  EXPECT_THAT(problem_of([](DecisionLog& log) { log.events[3].node = 2; }),
              HasSubstr("event 3 is none that a run of 2"));
  EXPECT_THAT(problem_of([](DecisionLog& log) { log.events[1].right = 9; }), HasSubstr("event 1 is none"));
  EXPECT_THAT(problem_of([](DecisionLog& log) { log.events[1].kind = static_cast<record::EventKind>(7); }),
              HasSubstr("event 1 is none"));
  EXPECT_THAT(problem_of([](DecisionLog& log) { log.events[4].between_bursts = 2; }), HasSubstr("event 4 is none"));
  EXPECT_THAT(problem_of([](DecisionLog& log) { log.events[2].position = 99; }),
              HasSubstr("event 2 is at reference 99"));
  EXPECT_THAT(problem_of([](DecisionLog& log) { log.page_size = 5000; }), HasSubstr("pages of 5000 bytes"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace multigrain::trace
