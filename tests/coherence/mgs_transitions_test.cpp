// These tests pin the contract of MGS, transition by transition: which actions it returns in which order, and which
// messages it refuses. mgs_driver_explorer_test.cpp shows that the transitions together are coherent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "coherence/mgs/transitions.h"

namespace multigrain::mgs {
namespace {

using testing::ElementsAre;

constexpr NodeId kHome{0};
constexpr NodeId kSelf{1};
constexpr NodeId kOther{2};
constexpr DomainId kDomain{0};

std::vector<Verb> verbs(const Actions& actions) {
  std::vector<Verb> out;
  for (const Action& action : actions) out.push_back(action.verb);
  return out;
}

// This is a node that is not the home.
struct RemoteNode {
  Page page;
  PageContext context{{kSelf, kHome}};
  Actions actions;

  std::vector<Verb> fault(Access access) {
    actions.clear();
    on_fault(page, context, kDomain, access, actions);
    return verbs(actions);
  }
  std::vector<Verb> receive(MessageKind kind) {
    actions.clear();
    EXPECT_TRUE(on_message(page, context, kHome, kind, actions)) << name(kind);
    return verbs(actions);
  }
  std::vector<Verb> unmapped() {
    actions.clear();
    on_unmapped(page, context, kDomain, actions);
    return verbs(actions);
  }
};

// This is a home that does not use the page itself.
struct Home {
  Page page;
  PageContext context{{kHome, kHome}};
  Actions actions;

  std::vector<Verb> receive(NodeId from, MessageKind kind) {
    actions.clear();
    EXPECT_TRUE(on_message(page, context, from, kind, actions)) << name(kind);
    return verbs(actions);
  }
  bool accepts(NodeId from, MessageKind kind) {
    Page copy = page;
    actions.clear();
    return on_message(copy, context, from, kind, actions);
  }
};

TEST(MgsTransitions, AReadFaultFetchesThePageAndMapsItOnceItIsThere) {
  RemoteNode node;
  EXPECT_THAT(node.fault(Access::kRead), ElementsAre(Verb::kSend));  // arc 5
  EXPECT_EQ(node.actions[0].kind, MessageKind::kRreq);
  EXPECT_THAT(node.fault(Access::kRead), ElementsAre());                                                     // waits
  EXPECT_THAT(node.receive(MessageKind::kRdat), ElementsAre(Verb::kTakePage, Verb::kMapRead, Verb::kWake));  // arc 6
  EXPECT_EQ(node.page.client.state, PageState::kRead);
}

TEST(MgsTransitions, APageIsTwinnedAndQueuedBeforeItBecomesWritable) {
  RemoteNode node;
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kSend));  // arc 5
  EXPECT_EQ(node.actions[0].kind, MessageKind::kWreq);
  EXPECT_THAT(node.receive(MessageKind::kWdat),
              ElementsAre(Verb::kTakePage, Verb::kMakeTwin, Verb::kQueue, Verb::kMapWrite,
                          Verb::kWake));  // arc 7
}

TEST(MgsTransitions, AnUpgradeNeedsNoAnswer) {
  RemoteNode node;
  node.fault(Access::kRead);
  node.receive(MessageKind::kRdat);
  EXPECT_THAT(node.fault(Access::kWrite),
              ElementsAre(Verb::kMakeTwin, Verb::kSend, Verb::kQueue, Verb::kMapWrite));  // arcs 2, 15, 8
  EXPECT_EQ(node.actions[1].kind, MessageKind::kWnotify);
}

// Otherwise a release that the home answers before it knows of the upgrade would cover what is written then.
TEST(MgsTransitions, AnUpgradeWaitsForTheAnswerToARelease) {
  RemoteNode node;
  node.fault(Access::kWrite);
  node.receive(MessageKind::kWdat);
  node.receive(MessageKind::kInv);
  node.unmapped();
  node.fault(Access::kRead);
  node.receive(MessageKind::kRdat);
  node.actions.clear();
  EXPECT_TRUE(on_release(node.page, node.context, kDomain, node.actions));
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre());
  EXPECT_THAT(node.receive(MessageKind::kRack), ElementsAre(Verb::kReleased, Verb::kWake));
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kMakeTwin, Verb::kSend, Verb::kQueue, Verb::kMapWrite));
}

TEST(MgsTransitions, ADiffIsMadeOnlyWhenTheMappingsAreGone) {
  RemoteNode node;
  node.fault(Access::kWrite);
  node.receive(MessageKind::kWdat);
  EXPECT_THAT(node.receive(MessageKind::kInv), ElementsAre(Verb::kUnmap));                           // arc 19
  EXPECT_THAT(node.unmapped(), ElementsAre(Verb::kSendDiff, Verb::kDropTwin, Verb::kWake));          // arc 21
  EXPECT_TRUE(node.page.client.queued.contains(kDomain)) << "its release must wait for that round";  // not arc 12
}

TEST(MgsTransitions, ASingleWriterNeedsNoTwinAndNoRelease) {
  RemoteNode node;
  node.fault(Access::kWrite);
  node.receive(MessageKind::kWdat);
  node.actions.clear();
  EXPECT_TRUE(on_release(node.page, node.context, kDomain, node.actions));
  EXPECT_EQ(node.actions[0].kind, MessageKind::kRel);
  EXPECT_THAT(node.receive(MessageKind::k1wgr), ElementsAre(Verb::kDropTwin, Verb::kSend));  // arcs 25 to 27
  EXPECT_THAT(node.receive(MessageKind::kRack), ElementsAre(Verb::kReleased));
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kMapWrite)) << "not queued";
  node.actions.clear();
  EXPECT_FALSE(on_release(node.page, node.context, kDomain, node.actions));
  EXPECT_THAT(node.receive(MessageKind::k1winv), ElementsAre(Verb::kUnmap));  // arc 22
  EXPECT_THAT(node.unmapped(), ElementsAre(Verb::kSendPage, Verb::kWake));    // arc 24
  EXPECT_FALSE(node.page.client.single_writer);
}

TEST(MgsTransitions, ADiffThatComesBeforeTheWholePageIsMergedAfterIt) {
  Home home;
  home.receive(kSelf, MessageKind::kWreq);
  home.receive(kOther, MessageKind::kRreq);
  EXPECT_THAT(home.receive(kSelf, MessageKind::kRel), ElementsAre(Verb::kSend, Verb::kSend));  // INV and 1WINV
  home.receive(kOther, MessageKind::kWnotify);
  EXPECT_THAT(home.receive(kOther, MessageKind::kDiff), ElementsAre(Verb::kKeepDiff));
  EXPECT_THAT(home.receive(kSelf, MessageKind::k1wdata),
              ElementsAre(Verb::kTakeHomeCopy, Verb::kMergeKept, Verb::kSend));
  EXPECT_EQ(home.actions[2].kind, MessageKind::kRack);
}

TEST(MgsTransitions, AReleaseOfWhatARoundHasTakenIsAnsweredAtOnceOrWithTheRound) {
  Home home;
  EXPECT_THAT(home.receive(kSelf, MessageKind::kRel), ElementsAre(Verb::kSend));
  EXPECT_EQ(home.actions[0].kind, MessageKind::kRack);
  home.receive(kOther, MessageKind::kWreq);
  home.receive(kOther, MessageKind::kRel);
  ASSERT_EQ(home.page.server.state, ServerState::kRelInProgress);
  EXPECT_THAT(home.receive(kSelf, MessageKind::kRel), ElementsAre());
  EXPECT_THAT(home.receive(kOther, MessageKind::kAck1w), ElementsAre(Verb::kSend));
  EXPECT_EQ(home.actions[0].nodes, NodeSet::of(kSelf) | NodeSet::of(kOther));
}

TEST(MgsTransitions, TheHomeWritesItsOwnPageWithoutTwinOrTransfer) {
  Home home;
  EXPECT_EQ(on_fault(home.page, home.context, kDomain, Access::kWrite, home.actions), FaultOutcome::kResolved);
  EXPECT_THAT(verbs(home.actions), ElementsAre(Verb::kMapWrite, Verb::kWake));
  EXPECT_EQ(home.page.server.state, ServerState::kSwrite);
}

// --- Reads without the home: (n) and (o) of docs/internals/mgs.md.

struct OneSidedNode : RemoteNode {
  OneSidedNode() { context.reads_one_sided = true; }

  std::vector<Verb> fetched() {
    actions.clear();
    on_fetched(page, context, actions);
    return verbs(actions);
  }
};

struct OneSidedHome : Home {
  OneSidedHome() { context.reads_one_sided = true; }

  std::vector<Verb> write() {
    actions.clear();
    EXPECT_EQ(on_fault(page, context, kDomain, Access::kWrite, actions), FaultOutcome::kResolved);
    return verbs(actions);
  }
};

TEST(MgsTransitions, APageThatANodeHasReadByItselfIsMapped) {
  OneSidedNode node;
  EXPECT_THAT(node.fault(Access::kRead), ElementsAre(Verb::kFetch));
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre()) << "waits";
  EXPECT_THAT(node.fetched(), ElementsAre(Verb::kMapRead, Verb::kWake));
  EXPECT_EQ(node.page.client.state, PageState::kRead);
}

TEST(MgsTransitions, ANodeWhoseReadIsVoidedAsksTheHome) {
  OneSidedNode node;
  node.fault(Access::kRead);
  EXPECT_THAT(node.receive(MessageKind::kInv), ElementsAre(Verb::kSend));
  EXPECT_EQ(node.actions[0].kind, MessageKind::kAck);
  EXPECT_FALSE(on_message(node.page, node.context, kHome, MessageKind::kInv, node.actions))
      << "it is no reader any more";
  EXPECT_THAT(node.fetched(), ElementsAre(Verb::kSend));
  EXPECT_EQ(node.actions[0].kind, MessageKind::kRreq);
  EXPECT_THAT(node.receive(MessageKind::kRdat), ElementsAre(Verb::kTakePage, Verb::kMapRead, Verb::kWake));
}

TEST(MgsTransitions, ANodeThatFindsTheWordClosedAsksTheHome) {
  OneSidedNode node;
  node.fault(Access::kRead);
  node.actions.clear();
  on_refused(node.page, node.context, node.actions);
  EXPECT_THAT(verbs(node.actions), ElementsAre(Verb::kSend));
  EXPECT_EQ(node.page.client.phase, Phase::kBusyRead);
}

TEST(MgsTransitions, AWriteAsksTheHomeAlways) {
  OneSidedNode node;
  EXPECT_THAT(node.fault(Access::kWrite), ElementsAre(Verb::kSend));
  EXPECT_EQ(node.actions[0].kind, MessageKind::kWreq);
}

TEST(MgsTransitions, ReadersThatCannotBeThereAreRefused) {
  OneSidedHome home;
  const NodeSet self = NodeSet::of(kSelf);
  EXPECT_TRUE(on_readers(home.page, home.context, self));
  EXPECT_TRUE(home.page.server.read_dir.contains(kSelf));
  EXPECT_FALSE(on_readers(home.page, home.context, self)) << "it has a copy";
  EXPECT_FALSE(on_readers(home.page, home.context, NodeSet::of(kHome)));
  home.receive(kOther, MessageKind::kWreq);
  EXPECT_TRUE(may_be_read(home.page));
  EXPECT_FALSE(on_readers(home.page, home.context, NodeSet::of(kOther)));
  home.receive(kOther, MessageKind::kRel);
  EXPECT_FALSE(may_be_read(home.page)) << "a round is in progress";
}

TEST(MgsTransitions, AHomeWhosePageIsReadElsewhereStaysAReaderWhenItReleases) {
  OneSidedHome home;
  home.write();
  ASSERT_EQ(home.page.server.state, ServerState::kSwrite) << "no other node has read the page";
  home.receive(kOther, MessageKind::kRreq);
  EXPECT_THAT(verbs(home.actions), ElementsAre(Verb::kUnmap));
  home.actions.clear();
  on_unmapped(home.page, home.context, kDomain, home.actions);
  home.receive(kOther, MessageKind::kWnotify);
  home.receive(kOther, MessageKind::kRel);
  home.actions.clear();
  on_unmapped(home.page, home.context, kDomain, home.actions);  // (l)
  home.receive(kOther, MessageKind::kAck1w);
  ASSERT_EQ(home.page.server.state, ServerState::kSwrite);
  home.actions.clear();
  EXPECT_EQ(on_fault(home.page, home.context, kDomain, Access::kWrite, home.actions), FaultOutcome::kWait);
  home.receive(kOther, MessageKind::k1wdata);
  ASSERT_EQ(home.page.server.state, ServerState::kWrite) << "the home is the only writer, and no single one";
  const auto release = [&] {
    home.actions.clear();
    EXPECT_TRUE(on_release(home.page, home.context, kDomain, home.actions));
    EXPECT_THAT(verbs(home.actions), ElementsAre(Verb::kUnmap));
    EXPECT_TRUE(will_keep_read_right(home.page, home.context));
    home.actions.clear();
    on_unmapped(home.page, home.context, kDomain, home.actions);
    EXPECT_EQ(home.page.server.state, ServerState::kRead);
    EXPECT_EQ(home.page.client.state, PageState::kRead);
    EXPECT_FALSE(home.page.client.release_pending);
  };
  release();
  home.write();
  ASSERT_EQ(home.page.server.state, ServerState::kWrite) << "it was read before the last write";
  release();
  home.write();
  EXPECT_EQ(home.page.server.state, ServerState::kSwrite) << "no other node has read it since";
}

// A node that only writes does not keep the home from being the single writer.
TEST(MgsTransitions, AHomeWhosePageIsWrittenElsewhereBecomesItsSingleWriter) {
  OneSidedHome home;
  home.receive(kOther, MessageKind::kWreq);
  home.receive(kOther, MessageKind::kRel);
  home.receive(kOther, MessageKind::kAck1w);
  ASSERT_EQ(home.page.server.state, ServerState::kSwrite);
  home.actions.clear();
  EXPECT_EQ(on_fault(home.page, home.context, kDomain, Access::kWrite, home.actions), FaultOutcome::kWait);
  home.receive(kOther, MessageKind::k1wdata);
  EXPECT_EQ(home.page.server.state, ServerState::kSwrite);
  EXPECT_TRUE(home.page.client.single_writer);
}

// --- What cannot have been sent is refused, so that the run ends instead of going on with wrong data.

TEST(MgsTransitions, ANodeThatAskedForNothingRefusesEverything) {
  for (unsigned k = 0; k < static_cast<unsigned>(MessageKind::kKindCount); ++k) {
    for (const NodeId from : {kHome, kOther}) {
      RemoteNode node;
      EXPECT_FALSE(on_message(node.page, node.context, from, static_cast<MessageKind>(k), node.actions))
          << name(static_cast<MessageKind>(k));
    }
  }
}

TEST(MgsTransitions, AnIdleHomeTakesOnlyRequestsAndReleases) {
  Home home;
  for (unsigned k = 0; k < static_cast<unsigned>(MessageKind::kKindCount); ++k) {
    const auto kind = static_cast<MessageKind>(k);
    const bool expected = kind == MessageKind::kRreq || kind == MessageKind::kWreq || kind == MessageKind::kRel;
    EXPECT_EQ(home.accepts(kOther, kind), expected) << name(kind);
  }
}

TEST(MgsTransitions, NobodyAsksTwiceOrAnswersTwice) {
  Home home;
  home.receive(kSelf, MessageKind::kWreq);
  EXPECT_FALSE(home.accepts(kSelf, MessageKind::kWreq)) << "it has a copy";
  EXPECT_FALSE(home.accepts(kSelf, MessageKind::kDiff)) << "nobody asked for it";
  home.receive(kOther, MessageKind::kWreq);
  home.receive(kSelf, MessageKind::kRel);
  EXPECT_FALSE(home.accepts(kSelf, MessageKind::kRel));
  EXPECT_FALSE(home.accepts(kSelf, MessageKind::k1wdata)) << "it was not told to send the page";
  home.receive(kSelf, MessageKind::kDiff);
  EXPECT_FALSE(home.accepts(kSelf, MessageKind::kDiff));
  home.receive(kSelf, MessageKind::kRreq);
  EXPECT_FALSE(home.accepts(kSelf, MessageKind::kRreq));
}

}  // namespace
}  // namespace multigrain::mgs
