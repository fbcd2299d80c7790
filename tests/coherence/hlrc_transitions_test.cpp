// The contract of HLRC, row by row of the tables in transitions.cpp: which actions in which order, and which state is next.
// That the transitions together are coherent is for hlrc_driver_explorer_test.cpp to show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "coherence/hlrc/transitions.h"

namespace multigrain::hlrc {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr NodeId kHome{0};
constexpr NodeId kSelf{1};

constexpr Page kInvalid{};
constexpr Page kPrefetched{.state = PageState::kPrefetched, .logged = true};
constexpr Page kRead{.state = PageState::kRead, .logged = true};
constexpr Page kWrite{.state = PageState::kWrite, .queued = true, .logged = true};

// A page at this node, which is its home or not.
struct AtNode {
  Page page;
  Context context;
  Actions actions{};
  FaultOutcome outcome = FaultOutcome::kAlone;

  std::vector<Verb> fault(Access access) {
    outcome = on_fault(page, context, access, actions);
    return taken();
  }
  std::vector<Verb> prefetch(bool with_rights) {
    on_prefetch(page, context, with_rights, actions);
    return taken();
  }
  std::vector<Verb> notice(bool is_used = false) {
    on_notice(page, context, is_used, actions);
    return taken();
  }
  std::vector<Verb> interval_end(bool is_used = false) {
    on_interval_end(page, context, is_used, actions);
    return taken();
  }
  std::vector<Verb> clean() {
    on_clean(page, context, actions);
    return taken();
  }
  std::vector<Verb> fetched_elsewhere() {
    on_fetched_elsewhere(page, actions);
    return taken();
  }
  std::vector<Verb> protect() {
    on_protect(page, context, actions);
    return taken();
  }
  std::vector<Verb> home_leaves() {
    on_home_leaves(page, actions);
    return taken();
  }
  std::vector<Verb> home_comes() {
    on_home_comes(page, actions);
    return taken();
  }

 private:
  std::vector<Verb> taken() {
    std::vector<Verb> verbs(actions.begin(), actions.end());
    actions.clear();
    return verbs;
  }
};

AtNode elsewhere(const Page& page) {
  return {.page = page, .context = {.self = kSelf, .home = kHome}};
}
AtNode at_home(const Page& page) {
  return {.page = page, .context = {.self = kHome, .home = kHome}};
}

// --- At a node that is not the home

TEST(HlrcElsewhere, AReadFaultOnInvalidFetches) {
  AtNode node = elsewhere(kInvalid);
  EXPECT_THAT(node.fault(Access::kRead), ElementsAre(Verb::kLogFetch, Verb::kFetch, Verb::kGrantRead));
  EXPECT_EQ(node.page, kRead);
  EXPECT_EQ(node.outcome, FaultOutcome::kFetched);
}

TEST(HlrcElsewhere, AWriteFaultOnInvalidFetchesAndMakesATwin) {
  AtNode node = elsewhere(kInvalid);
  EXPECT_THAT(node.fault(Access::kWrite),
              ElementsAre(Verb::kLogFetch, Verb::kFetch, Verb::kMakeTwin, Verb::kQueue, Verb::kGrantWrite));
  EXPECT_EQ(node.page, kWrite);
}

TEST(HlrcElsewhere, APageInTheFetchLogIsNotLoggedAgain) {
  AtNode node = elsewhere({.logged = true});
  EXPECT_THAT(node.fault(Access::kRead), ElementsAre(Verb::kFetch, Verb::kGrantRead));
}

TEST(HlrcElsewhere, APrefetchGivesRightsToAllPagesButTheLast) {
  AtNode node = elsewhere(kInvalid);
  EXPECT_THAT(node.prefetch(true), ElementsAre(Verb::kLogFetch, Verb::kFetch, Verb::kGrantRead));
  EXPECT_EQ(node.page, kRead);
  AtNode last = elsewhere(kInvalid);
  EXPECT_THAT(last.prefetch(false), ElementsAre(Verb::kLogFetch, Verb::kFetch));
  EXPECT_EQ(last.page, kPrefetched);
  for (const Page& page : {kPrefetched, kRead, kWrite}) EXPECT_THAT(elsewhere(page).prefetch(true), IsEmpty());
  EXPECT_THAT(at_home(kInvalid).prefetch(true), IsEmpty());
}

TEST(HlrcElsewhere, FaultsOnPrefetchedFetchNothing) {
  AtNode node = elsewhere(kPrefetched);
  EXPECT_THAT(node.fault(Access::kRead), ElementsAre(Verb::kGrantRead));
  EXPECT_EQ(node.page, kRead);
  EXPECT_EQ(node.outcome, FaultOutcome::kPrefetched);
  AtNode written = elsewhere(kPrefetched);
  EXPECT_THAT(written.fault(Access::kWrite), ElementsAre(Verb::kMakeTwin, Verb::kQueue, Verb::kGrantWrite));
  EXPECT_EQ(written.page, kWrite);
}

TEST(HlrcElsewhere, AWriteFaultOnReadUpgrades) {
  AtNode node = elsewhere(kRead);
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kMakeTwin, Verb::kQueue, Verb::kUpgrade));
  EXPECT_EQ(node.page, kWrite);
  // A page that has joined the interval already does so once.
  AtNode again = elsewhere({.state = PageState::kRead, .queued = true, .logged = true});
  EXPECT_THAT(again.fault(Access::kWrite), ElementsAre(Verb::kMakeTwin, Verb::kUpgrade));
}

TEST(HlrcElsewhere, AFaultThatAnotherProcessorHasHandledGrantsTheSameRight) {
  EXPECT_THAT(elsewhere(kRead).fault(Access::kRead), ElementsAre(Verb::kGrantRead));
  for (const Access access : {Access::kRead, Access::kWrite})
    EXPECT_THAT(elsewhere(kWrite).fault(access), ElementsAre(Verb::kGrantWrite));
}

TEST(HlrcElsewhere, ANoticeTakesRightsAndTheEntryInTheFetchLog) {
  AtNode invalid = elsewhere({.logged = true});
  EXPECT_THAT(invalid.notice(), IsEmpty());
  EXPECT_EQ(invalid.page, kInvalid);
  AtNode prefetched = elsewhere(kPrefetched);
  EXPECT_THAT(prefetched.notice(), ElementsAre(Verb::kWasted));
  EXPECT_EQ(prefetched.page, kInvalid);
  AtNode read = elsewhere(kRead);
  EXPECT_THAT(read.notice(), ElementsAre(Verb::kRevoke));
  EXPECT_EQ(read.page, kInvalid);
  AtNode written = elsewhere(kWrite);
  EXPECT_THAT(written.notice(), ElementsAre(Verb::kRevoke, Verb::kDeposit, Verb::kDropTwin));
  EXPECT_EQ(written.page, (Page{.queued = true}));
}

TEST(HlrcElsewhere, ANoticeOfAPageInUseBringsWhatHasChanged) {
  AtNode read = elsewhere(kRead);
  EXPECT_THAT(read.notice(true), ElementsAre(Verb::kLogFetch, Verb::kRefresh));
  EXPECT_EQ(read.page, kRead);
  AtNode written = elsewhere(kWrite);
  EXPECT_THAT(written.notice(true), ElementsAre(Verb::kLogFetch, Verb::kMerge));
  EXPECT_EQ(written.page, kWrite);
  // A page without rights is not fetched.
  AtNode invalid = elsewhere({.logged = true});
  EXPECT_THAT(invalid.notice(true), IsEmpty());
  EXPECT_EQ(invalid.page, kInvalid);
}

TEST(HlrcElsewhere, AnIntervalEndDepositsAndANoticeFollowsIfAnythingHasChanged) {
  for (const bool changed : {false, true}) {
    AtNode node = elsewhere(kWrite);
    EXPECT_THAT(node.interval_end(), ElementsAre(Verb::kRevokeWrite, Verb::kDeposit, Verb::kDropTwin));
    on_deposited(node.page, changed);
    if (changed)
      EXPECT_THAT(node.clean(), ElementsAre(Verb::kNotice));
    else
      EXPECT_THAT(node.clean(), IsEmpty());
    EXPECT_EQ(node.page, kRead);
  }
}

TEST(HlrcElsewhere, APageInUseStaysWritableAndJoinsTheNextIntervalBeforeItsDiffIsMade) {
  AtNode node = elsewhere(kWrite);
  EXPECT_THAT(node.interval_end(true), ElementsAre(Verb::kQueue, Verb::kDeposit, Verb::kUpdateTwin));
  on_deposited(node.page, true);
  EXPECT_THAT(node.clean(), ElementsAre(Verb::kNotice));
  EXPECT_EQ(node.page, kWrite);
  // A page that is not writable at the end of the interval is clean, whether it is in use or not.
  AtNode invalid = elsewhere({.queued = true, .notice_pending = true});
  EXPECT_THAT(invalid.interval_end(true), IsEmpty());
  EXPECT_THAT(invalid.clean(), ElementsAre(Verb::kNotice));
  EXPECT_EQ(invalid.page, kInvalid);
}

// --- At the home

TEST(HlrcPrivateHome, FaultsMakeThePageWritableAndAreNoticedByNobody) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    AtNode node = at_home(kInvalid);
    EXPECT_THAT(node.fault(access), ElementsAre(Verb::kGrantWrite));
    EXPECT_EQ(node.page, (Page{.state = PageState::kWrite}));
  }
  AtNode read = at_home({.state = PageState::kRead});
  EXPECT_THAT(read.fault(Access::kRead), ElementsAre(Verb::kGrantRead));
  EXPECT_THAT(read.fault(Access::kWrite), ElementsAre(Verb::kUpgrade));
  EXPECT_EQ(read.page, (Page{.state = PageState::kWrite}));
}

TEST(HlrcPrivateHome, AFetchMakesItSharedAndItsWriteNoticed) {
  AtNode written = at_home({.state = PageState::kWrite});
  EXPECT_THAT(written.fetched_elsewhere(), ElementsAre(Verb::kQueue));
  EXPECT_EQ(written.page, (Page{.state = PageState::kWrite, .queued = true, .notice_pending = true, .shared = true}));
  EXPECT_THAT(written.fetched_elsewhere(), IsEmpty());
  AtNode read = at_home({.state = PageState::kRead});
  EXPECT_THAT(read.fetched_elsewhere(), IsEmpty());
  EXPECT_EQ(read.page, (Page{.state = PageState::kRead, .shared = true}));
}

TEST(HlrcPrivateHome, TheEndOfTheSerialPartTakesTheRightToWrite) {
  AtNode written = at_home({.state = PageState::kWrite});
  EXPECT_THAT(written.protect(), ElementsAre(Verb::kRevokeWrite));
  EXPECT_EQ(written.page, (Page{.state = PageState::kRead}));
  EXPECT_THAT(written.protect(), IsEmpty());
  EXPECT_THAT(at_home({.state = PageState::kWrite, .queued = true, .notice_pending = true, .shared = true}).protect(),
              IsEmpty());
  EXPECT_THAT(elsewhere(kWrite).protect(), IsEmpty());
}

TEST(HlrcSharedHome, WritesAreNoticedOnceAndThenThePageIsPrivate) {
  AtNode node = at_home({.state = PageState::kRead, .shared = true});
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kQueue, Verb::kUpgrade));
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kGrantWrite));
  EXPECT_THAT(node.interval_end(), ElementsAre(Verb::kRevokeWrite));
  EXPECT_THAT(node.clean(), ElementsAre(Verb::kNotice));
  EXPECT_EQ(node.page, (Page{.state = PageState::kRead}));
  AtNode invalid = at_home({.shared = true});
  EXPECT_THAT(invalid.fault(Access::kRead), ElementsAre(Verb::kGrantRead));
  EXPECT_EQ(invalid.page, (Page{.state = PageState::kRead, .shared = true}));
  AtNode written = at_home({.shared = true});
  EXPECT_THAT(written.fault(Access::kWrite), ElementsAre(Verb::kQueue, Verb::kGrantWrite));
}

TEST(HlrcSharedHome, APageInUseStaysWritableAndIsPrivateThen) {
  AtNode node = at_home({.state = PageState::kWrite, .queued = true, .notice_pending = true, .shared = true});
  EXPECT_THAT(node.interval_end(true), IsEmpty());
  EXPECT_THAT(node.clean(), ElementsAre(Verb::kNotice));
  EXPECT_EQ(node.page, (Page{.state = PageState::kWrite}));
}

TEST(HlrcHome, NoticesOfOtherNodesConcernNoHomeCopy) {
  for (const bool is_used : {false, true}) {
    AtNode node = at_home({.state = PageState::kRead, .shared = true});
    EXPECT_THAT(node.notice(is_used), IsEmpty());
    EXPECT_EQ(node.page, (Page{.state = PageState::kRead, .shared = true}));
  }
}

// --- A home that moves

TEST(HlrcMove, TheFormerHomeKeepsACopyWithoutTheRightToWrite) {
  AtNode written = at_home({.state = PageState::kWrite});
  EXPECT_THAT(written.home_leaves(), ElementsAre(Verb::kRevokeWrite));
  EXPECT_EQ(written.page, kRead);
  AtNode invalid = at_home({.shared = true});
  EXPECT_THAT(invalid.home_leaves(), IsEmpty());
  EXPECT_EQ(invalid.page, kInvalid);
}

TEST(HlrcMove, TheNewHomeCountsThePageAsShared) {
  AtNode written = elsewhere(kWrite);
  EXPECT_THAT(written.home_comes(), ElementsAre(Verb::kDropTwin));
  EXPECT_EQ(written.page, (Page{.state = PageState::kWrite, .queued = true, .notice_pending = true, .shared = true}));
  AtNode read = elsewhere(kRead);
  EXPECT_THAT(read.home_comes(), IsEmpty());
  EXPECT_EQ(read.page, (Page{.state = PageState::kRead, .shared = true}));
  AtNode prefetched = elsewhere(kPrefetched);
  EXPECT_THAT(prefetched.home_comes(), IsEmpty());
  EXPECT_EQ(prefetched.page, (Page{.shared = true}));
}

// In how many episodes one after the other a node has to write a page alone until the home comes to it.
int episodes_until_it_moves(Writers& writers, NodeId writer) {
  for (int episodes = 1; episodes < 1000; ++episodes)
    if (on_episode_end(writers, writer)) return episodes;
  return 0;
}

TEST(HlrcMove, EachMoveAsksForMoreEpisodes) {
  Writers writers;
  const NodeId a(3), b(4);
  EXPECT_EQ(episodes_until_it_moves(writers, a), 1);
  EXPECT_EQ(episodes_until_it_moves(writers, b), 1) << "it may have been at home at the first writer";
  EXPECT_EQ(episodes_until_it_moves(writers, a), 2);
  EXPECT_EQ(episodes_until_it_moves(writers, b), 4);
  for (int i = 0; i < 11; ++i) static_cast<void>(episodes_until_it_moves(writers, i % 2 == 0 ? a : b));
  EXPECT_EQ(episodes_until_it_moves(writers, b), 64) << "the most";
}

TEST(HlrcMove, SeveralWritersOrTheHomeItselfMoveNothing) {
  Writers writers;
  EXPECT_FALSE(on_episode_end(writers, std::nullopt));
  EXPECT_TRUE(on_episode_end(writers, NodeId(4)));
  EXPECT_FALSE(on_episode_end(writers, NodeId(4)));
  EXPECT_TRUE(on_episode_end(writers, NodeId(3)));
  EXPECT_FALSE(on_episode_end(writers, NodeId(4)));
  EXPECT_FALSE(on_episode_end(writers, std::nullopt)) << "the count begins again";
  EXPECT_FALSE(on_episode_end(writers, NodeId(4)));
  EXPECT_TRUE(on_episode_end(writers, NodeId(4)));
}

}  // namespace
}  // namespace multigrain::hlrc
