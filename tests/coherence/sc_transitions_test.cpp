// These tests take the transitions of sequentially consistent pages one by one, and messages that no correct node
// sends. sc_driver_explorer_test.cpp shows that they are coherent together.
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "coherence/sc/transitions.h"

namespace multigrain::sc {
namespace {

constexpr NodeId kHome(0);
constexpr NodeId kNode(1);
constexpr NodeId kOther(2);
constexpr Context kAtHome{.self = kHome, .home = kHome};
constexpr Context kAway{.self = kNode, .home = kHome};

std::vector<Verb> verbs(const Actions& actions) {
  std::vector<Verb> all;
  for (const Action& action : actions) all.push_back(action.verb);
  return all;
}

// Returns what the transition sends, in order.
std::vector<MessageKind> sent(const Actions& actions) {
  std::vector<MessageKind> all;
  for (const Action& action : actions)
    if (action.verb == Verb::kSend || action.verb == Verb::kSendPage) all.push_back(action.message.kind);
  return all;
}

bool takes(Page& page, const Context& context, NodeId from, const PageMessage& message, Actions& actions) {
  actions.clear();
  return on_message(page, context, from, message, actions);
}

// Returns the page at a node away from home that has been granted a copy to read, or to write.
Page with_copy(Access access) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, access, actions), FaultOutcome::kWait);
  const MessageKind reply = access == Access::kRead ? MessageKind::kData : MessageKind::kDataExclusive;
  EXPECT_TRUE(takes(page, kAway, kHome, {.kind = reply, .requester = kNode}, actions));
  on_returned(page);
  return page;
}

TEST(ScTransitions, TheHomeHasAPageAtFirst) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAtHome, Access::kWrite, actions), FaultOutcome::kResolved);
  EXPECT_EQ(verbs(actions), std::vector{Verb::kMapWrite});
  EXPECT_TRUE(page.held);
}

TEST(ScTransitions, AReaderThatIsExpectedToWriteWaitsForTheOnlyCopy) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, Access::kReadToWrite, actions), FaultOutcome::kWait);
  EXPECT_EQ(sent(actions), std::vector{MessageKind::kWrite});
  EXPECT_TRUE(takes(page, kAway, kHome, {.kind = MessageKind::kDataExclusive, .requester = kNode}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kTakePage, Verb::kMapWrite, Verb::kWakeReaders}));
  EXPECT_EQ(page.returning, 1);
}

TEST(ScTransitions, TheOnlyCopyIsPrefetchedUnlessThePageIsHeldOrExclusive) {
  Actions actions;
  Page invalid;
  on_prefetch(invalid, kAway, Access::kWrite, actions);
  EXPECT_EQ(sent(actions), std::vector{MessageKind::kWrite});
  // The page is asked for only once.
  actions.clear();
  on_prefetch(invalid, kAway, Access::kWrite, actions);
  EXPECT_TRUE(actions.empty());

  Page held = with_copy(Access::kRead);
  on_prefetch(held, kAway, Access::kWrite, actions);
  EXPECT_TRUE(actions.empty());
  on_hold_over(held, kAway, actions);
  on_prefetch(held, kAway, Access::kWrite, actions);
  EXPECT_EQ(sent(actions), std::vector{MessageKind::kWrite});

  Page exclusive = with_copy(Access::kWrite);
  actions.clear();
  on_hold_over(exclusive, kAway, actions);
  on_prefetch(exclusive, kAway, Access::kWrite, actions);
  EXPECT_TRUE(actions.empty());
}

TEST(ScTransitions, AReadFaultAsksTheHome) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, Access::kRead, actions), FaultOutcome::kWait);
  EXPECT_EQ(sent(actions), std::vector{MessageKind::kRead});
  // A second thread waits for the same answer.
  actions.clear();
  EXPECT_EQ(on_fault(page, kAway, Access::kRead, actions), FaultOutcome::kWait);
  EXPECT_TRUE(actions.empty());
  EXPECT_TRUE(takes(page, kAway, kHome, {.kind = MessageKind::kData, .requester = kNode}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kTakePage, Verb::kMapRead, Verb::kWakeReaders}));
  EXPECT_EQ(page.returning, 2);
}

TEST(ScTransitions, AWriteIsCompleteWithTheLastAcknowledgement) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, Access::kWrite, actions), FaultOutcome::kWait);
  EXPECT_TRUE(takes(page, kAway, kOther, {.kind = MessageKind::kInvalidated, .requester = kNode}, actions));
  EXPECT_TRUE(takes(page, kAway, kHome, {.kind = MessageKind::kDataExclusive, .requester = kNode, .acks = 2}, actions));
  EXPECT_EQ(verbs(actions), std::vector{Verb::kTakePage});
  EXPECT_FALSE(page.is_writable());
  EXPECT_TRUE(takes(page, kAway, NodeId(3), {.kind = MessageKind::kInvalidated, .requester = kNode}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kMapWrite, Verb::kWakeWriters}));
  EXPECT_TRUE(page.is_writable());
}

TEST(ScTransitions, AHeldPageIsGivenWhenTheHoldIsOver) {
  Page page = with_copy(Access::kWrite);
  Actions actions;
  EXPECT_TRUE(takes(page, kAway, kHome, {.kind = MessageKind::kForwardWrite, .requester = kOther}, actions));
  EXPECT_EQ(verbs(actions), std::vector{Verb::kAwaitHold});
  // The copy is to go: a thread that wants to write waits, and asks when it is gone.
  EXPECT_EQ(on_fault(page, kAway, Access::kRead, actions), FaultOutcome::kResolved);
  actions.clear();
  on_hold_over(page, kAway, actions);
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kRevoke, Verb::kSendPage}));
  EXPECT_EQ(page.state, State::kInvalid);
}

TEST(ScTransitions, AHeldSharedCopyServesReadersAtOnce) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAtHome, Access::kWrite, actions), FaultOutcome::kResolved);
  on_hold_over(page, kAtHome, actions);
  EXPECT_TRUE(takes(page, kAtHome, kNode, {.kind = MessageKind::kRead, .requester = kNode}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kRevokeWrite, Verb::kSendPage}));
  actions.clear();
  EXPECT_EQ(on_fault(page, kAtHome, Access::kRead, actions), FaultOutcome::kResolved);
  EXPECT_TRUE(page.held);
  EXPECT_TRUE(takes(page, kAtHome, kOther, {.kind = MessageKind::kRead, .requester = kOther}, actions));
  EXPECT_EQ(verbs(actions), std::vector{Verb::kSendPage});
}

// Each of these would end the run.
TEST(ScTransitions, RefuseWhatNoCorrectNodeSends) {
  Actions actions;
  const auto refuses = [&](Page page, const Context& context, NodeId from, const PageMessage& message) {
    return !takes(page, context, from, message, actions);
  };
  for (const MessageKind kind : {MessageKind::kRead, MessageKind::kWrite})
    EXPECT_TRUE(refuses({}, kAway, kOther, {.kind = kind, .requester = kOther}))
        << "a request to a node that is not home";
  for (const MessageKind kind :
       {MessageKind::kData, MessageKind::kDataExclusive, MessageKind::kUpgraded, MessageKind::kInvalidated})
    EXPECT_TRUE(refuses({}, kAway, kHome, {.kind = kind, .requester = kNode}))
        << "an answer to nothing: " << name(kind);
  const Page shared = with_copy(Access::kRead);
  EXPECT_TRUE(refuses(shared, kAway, kOther, {.kind = MessageKind::kInvalidate, .requester = kOther}))
      << "not the home";
  EXPECT_TRUE(refuses(shared, kAway, kHome, {.kind = MessageKind::kInvalidate, .requester = kNode})) << "for itself";
  EXPECT_TRUE(refuses(shared, kAway, kHome, {.kind = MessageKind::kUpgraded, .requester = kNode})) << "not asked for";
  EXPECT_TRUE(refuses({}, kAway, kHome, {.kind = MessageKind::kForwardRead, .requester = kOther}))
      << "of what is not here";
  EXPECT_TRUE(refuses({}, kAway, kHome, {.kind = MessageKind::kForwardWrite, .requester = kOther}))
      << "of what is not here";
  EXPECT_TRUE(refuses({}, kAway, kHome, {.kind = MessageKind::kInvalidate, .requester = kOther}))
      << "of what is not here";

  Page twice = with_copy(Access::kRead);
  EXPECT_TRUE(takes(twice, kAway, kHome, {.kind = MessageKind::kInvalidate, .requester = kOther}, actions));
  EXPECT_TRUE(refuses(twice, kAway, kHome, {.kind = MessageKind::kInvalidate, .requester = kOther})) << "twice";
  Page home;
  EXPECT_TRUE(takes(home, kAtHome, kNode, {.kind = MessageKind::kRead, .requester = kNode}, actions));
  EXPECT_TRUE(refuses(home, kAtHome, kNode, {.kind = MessageKind::kRead, .requester = kNode})) << "it has a copy";
}

TEST(ScTransitions, TheHomeClearsWhatItHasAlone) {
  Page page;
  Actions actions;
  // A page that no node has used is zeros anyway.
  EXPECT_TRUE(on_discard(page, kAtHome, kNode, actions));
  EXPECT_TRUE(actions.empty());
  on_fault(page, kAtHome, Access::kWrite, actions);
  on_hold_over(page, kAtHome, actions);
  actions.clear();
  EXPECT_TRUE(on_discard(page, kAtHome, kNode, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kRevoke, Verb::kClear}));
  EXPECT_EQ(page, Page{});
}

TEST(ScTransitions, ADiscardTakesThePageFromOtherNodesFirst) {
  Page page;
  Actions actions;
  EXPECT_TRUE(takes(page, kAtHome, kNode, {.kind = MessageKind::kWrite, .requester = kNode}, actions));
  actions.clear();
  EXPECT_FALSE(on_discard(page, kAtHome, kOther, actions));
  EXPECT_EQ(sent(actions), std::vector{MessageKind::kForwardWrite});
  EXPECT_TRUE(takes(page, kAtHome, kNode, {.kind = MessageKind::kDataExclusive, .requester = kHome}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kTakePage, Verb::kMapWrite, Verb::kRevoke, Verb::kClear, Verb::kSend}));
  EXPECT_EQ(sent(actions), std::vector{MessageKind::kDiscarded});
  EXPECT_EQ(actions.begin()[4].node, kOther);
  EXPECT_EQ(page, Page{});
}

TEST(ScTransitions, ADiscardWaitsForTheEndOfTheHold) {
  Page page;
  Actions actions;
  on_fault(page, kAtHome, Access::kWrite, actions);
  actions.clear();
  EXPECT_FALSE(on_discard(page, kAtHome, kHome, actions));
  EXPECT_EQ(verbs(actions), std::vector{Verb::kAwaitHold});
  actions.clear();
  on_hold_over(page, kAtHome, actions);
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kRevoke, Verb::kClear, Verb::kSend}));
}

}  // namespace
}  // namespace multigrain::sc
