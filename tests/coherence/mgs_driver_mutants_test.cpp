// The checks can fail. Each test breaks one thing that the protocol relies on and expects the exploration to refute it,
// for the reason that docs/internals/mgs.md gives. The same machine without the fault passes
// (mgs_driver_explorer_test.cpp).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "exploration_test.h"
#include "mgs_driver_world.h"
#include "mgs_scenarios.h"

namespace multigrain::mgs::explored {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr size_t kMaxStates = 1'000'000;

exploring::Report explore_with(Mutant mutant) {
  const Scenario scenario = scenario_that_refutes(mutant);
  exploring::Report report = exploring::explore<Machine>(scenario, kMaxStates);
  std::printf("%s | %s | %zu states | %s\n", name(mutant), scenario.name.c_str(), report.states,
              report.failure.c_str());
  return report;
}

// This is Figure 22's arc 12. Node 1's page went home with the round of node 2's release. Its own release then has
// nothing to wait for, and the token reaches node 0 before the invalidation does.
TEST(MgsDriverMutants, ForgettingTheQueueEntryAtAnInvalidationLetsAStaleCopyBeRead) {
  const exploring::Report report = explore_with(Mutant::kForgetQueueEntry);
  EXPECT_THAT(report.failure, HasSubstr("processor 3 read 0 from page 0 word 0; legal is 1")) << report.trace;
  EXPECT_THAT(report.trace, HasSubstr("INV of page 0 from node 2 to node 0"));
}

// A node has one queue: the neighbour has taken the page, with this processor's write in it.
TEST(MgsDriverMutants, IgnoringTheNeighboursReleaseLetsAStaleCopyBeRead) {
  const exploring::Report report = explore_with(Mutant::kIgnoreOtherReleases);
  EXPECT_THAT(report.failure, HasSubstr("processor 2 read 0 from page 0")) << report.trace;
}

// The page that the sole writer sends replaces what the upgraded reader has sent before.
TEST(MgsDriverMutants, MergingADiffBeforeTheWholePageLosesIt) {
  const exploring::Report report = explore_with(Mutant::kMergeDiffAtOnce);
  EXPECT_THAT(report.failure, AnyOf(HasSubstr("read 0 from page 0 word 1; legal is 2"),
                                    HasSubstr("word 1 at node 0 is 0 in the end; it was last written 2")))
      << report.trace;
}

// The other processor writes after the comparison with the twin.
TEST(MgsDriverMutants, MakingTheDiffBeforeTheMappingIsGoneLosesAWrite) {
  const exploring::Report report = explore_with(Mutant::kDiffBeforeUnmap);
  EXPECT_THAT(report.failure, AnyOf(HasSubstr("read 0 from page 0 word 1; legal is 2"),
                                    HasSubstr("word 1 at node 0 is 0 in the end; it was last written 2")))
      << report.trace;
}

// The neighbour writes through the new mapping, and its release does not find the page.
TEST(MgsDriverMutants, MappingAPageBeforeItIsQueuedLetsAStaleCopyBeRead) {
  const exploring::Report report = explore_with(Mutant::kMapBeforeQueue);
  EXPECT_THAT(report.failure, HasSubstr("processor 2 read 0 from page 0")) << report.trace;
}

TEST(MgsDriverMutants, ReorderingMessagesIsNoticed) {
  const exploring::Report report = explore_with(Mutant::kReorderMessages);
  EXPECT_NE(report.failure, "");
}

TEST(MgsDriverMutants, LosingAWakeUpIsADeadlock) {
  const exploring::Report report = explore_with(Mutant::kLoseWake);
  EXPECT_THAT(report.failure, HasSubstr("deadlock")) << report.trace;
}

TEST(MgsDriverMutants, ReturningAWrittenCopyWholeLosesTheOtherWriters) {
  const exploring::Report report = explore_with(Mutant::kNoTwin);
  EXPECT_THAT(report.failure, AnyOf(HasSubstr("read 0"), HasSubstr("in the end"))) << report.trace;
}

TEST(MgsDriverMutants, LookingLateAtTheCountOfWakeUpsIsADeadlock) {
  const exploring::Report report = explore_with(Mutant::kPrepareAfterTransition);
  EXPECT_THAT(report.failure, HasSubstr("deadlock")) << report.trace;
}

// These mutants do not count in an epoch what they must, or do not wait for an epoch in a release.
class MgsDriverEpochs : public testing::TestWithParam<Mutant> {};

TEST_P(MgsDriverEpochs, AreNeeded) {
  const exploring::Report report = explore_with(GetParam());
  EXPECT_NE(report.failure, "");
  EXPECT_EQ(report.failure.find("more than"), std::string::npos) << report.failure;
}

INSTANTIATE_TEST_SUITE_P(Mgs, MgsDriverEpochs,
                         testing::Values(Mutant::kUncountedPages, Mutant::kOneEpoch, Mutant::kMarkBeforePages,
                                         Mutant::kForgetsToFinish, Mutant::kSlotOfLastRelease));

// These are of nodes whose processors have tables and queues of their own.
TEST(MgsDriverMutants, TakingAnotherProcessorsReleaseForOnesOwnLetsAStaleCopyBeRead) {
  const exploring::Report report = explore_with(Mutant::kJoinsOthers);
  EXPECT_NE(report.failure, "");
  EXPECT_EQ(report.failure.find("more than"), std::string::npos) << report.failure;
}

TEST(MgsDriverMutants, EndingTheReleasesOfOneProcessorOnlyIsADeadlock) {
  const exploring::Report report = explore_with(Mutant::kFinishesFirst);
  EXPECT_NE(report.failure, "");
  EXPECT_EQ(report.failure.find("more than"), std::string::npos) << report.failure;
}

TEST(MgsDriverMutants, ShootingOneMappingDownOfSeveralIsNoticed) {
  const exploring::Report report = explore_with(Mutant::kShootsOneDown);
  EXPECT_NE(report.failure, "");
  EXPECT_EQ(report.failure.find("more than"), std::string::npos) << report.failure;
}

TEST(MgsDriverMutants, CarryingOutAMessageWithoutThePagesLockIsNoticed) {
  const exploring::Report report = explore_with(Mutant::kActionsWithoutLock);
  EXPECT_NE(report.failure, "");
}

TEST(MgsDriverMutants, AHomeThatKeepsTheRightToWriteLetsAStaleCopyBeRead) {
  const exploring::Report report = explore_with(Mutant::kWritesUnderReadRight);
  EXPECT_THAT(report.failure, HasSubstr("read")) << report.trace;
}

// This is (c) of docs/internals/mgs.md.
TEST(MgsDriverMutants, AnUpgradeThatOvertakesTheAnswerToAReleaseLetsAStaleCopyBeRead) {
  const exploring::Report report = explore_with(Mutant::kUpgradeBehindRelease);
  EXPECT_NE(report.failure, "");
}

TEST(MgsDriverMutants, SendingDataBeforeTheAnswerToAReleaseIsNoticed) {
  const exploring::Report report = explore_with(Mutant::kDataBeforeRack);
  EXPECT_NE(report.failure, "");
}

// These break one of O1 to O5 of docs/internals/mgs.md, (n).
class MgsOneSidedReads : public testing::TestWithParam<Mutant> {};

TEST_P(MgsOneSidedReads, NeedIt) {
  const exploring::Report report = explore_with(GetParam());
  EXPECT_NE(report.failure, "");
  EXPECT_EQ(report.failure.find("more than"), std::string::npos) << report.failure;
}

INSTANTIATE_TEST_SUITE_P(Mgs, MgsOneSidedReads,
                         testing::Values(Mutant::kOpenBeforeMerge, Mutant::kReadersForgottenAtRel,
                                         Mutant::kReadersForgottenAtGrant, Mutant::kReadersFoundLate, Mutant::kMapsVoid,
                                         Mutant::kOpenUnderSingleWriter, Mutant::kKeepsReaders, Mutant::kGetBeforeAdd,
                                         Mutant::kGetsClosed, Mutant::kReadsClosed));

// --- The programs are checked too.

Scenario on_two_nodes(std::string name, std::vector<Processor> processors) {
  Scenario scenario;
  scenario.name = std::move(name);
  scenario.nodes = 2;
  scenario.homes = {0};
  scenario.processors = std::move(processors);
  return scenario;
}

TEST(MgsPrograms, RacingWritesAreRefused) {
  Scenario scenario = on_two_nodes("race", {{0, {write(0, 0, 1), release()}}, {1, {write(0, 0, 2), release()}}});
  EXPECT_THROW(scenario.prepare(), std::invalid_argument);
}

TEST(MgsPrograms, ATokenWithoutAReleaseIsRefused) {
  Scenario scenario =
      on_two_nodes("label", {{0, {write(0, 0, 1), signal(0), release()}}, {1, {wait({0}), read(0, 0)}}});
  EXPECT_THROW(scenario.prepare(), std::invalid_argument);
}

TEST(MgsPrograms, LegalValuesFollowHappensBefore) {
  Scenario scenario = on_two_nodes("legal", {{0, {write(0, 0, 1), release(), signal(0), write(0, 0, 2), release()}},
                                             {1, {read(0, 0), wait({0}), read(0, 0), read(0, 1)}}});
  scenario.prepare();
  const Program& reader = scenario.processors[1].program;
  EXPECT_THAT(reader[0].legal, testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(reader[2].legal, testing::UnorderedElementsAre(1, 2));
  EXPECT_THAT(reader[3].legal, testing::UnorderedElementsAre(0));
  EXPECT_EQ(scenario.final_values, (std::vector<Value>{2, 0}));
}

}  // namespace
}  // namespace multigrain::mgs::explored
