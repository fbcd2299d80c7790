// These tests take the transitions of placed pages one by one: the rows of Figure 3.3, in its order, and messages that no correct
// node sends. placement_explorer_test.cpp shows that they are coherent together.
#include <gtest/gtest.h>

#include <vector>

#include "coherence/placement/transitions.h"

namespace multigrain::placement {
namespace {

constexpr NodeId kHome(0);
constexpr NodeId kFirst(1);
constexpr NodeId kSecond(2);
constexpr NodeId kThird(3);
constexpr Context kAtHome{.self = kHome, .home = kHome};
constexpr Context kAway{.self = kFirst, .home = kHome};

using Kinds = std::vector<MessageKind>;

std::vector<Verb> verbs(const Actions& actions) {
  std::vector<Verb> all;
  for (const Action& action : actions) all.push_back(action.verb);
  return all;
}

// These are the messages to one node, in order.
Kinds sent_to(const Actions& actions, NodeId node) {
  Kinds all;
  for (const Action& action : actions)
    if ((action.verb == Verb::kSend || action.verb == Verb::kSendPage) && action.node == node)
      all.push_back(action.message.kind);
  return all;
}

// Returns the grant to a node, which must have been sent.
PageMessage grant_to(const Actions& actions, NodeId node) {
  for (const Action& action : actions)
    if (action.node == node && action.message.kind == MessageKind::kGrant) return action.message;
  ADD_FAILURE() << "no grant to node " << node.value;
  return {};
}

// This is the home of a page, which other nodes ask and answer.
struct Home {
  Page page;
  Actions actions;

  [[nodiscard]] const Directory& entry() const { return page.directory; }
  bool receive(NodeId from, MessageKind kind, Content content = Content::kNone) {
    actions.clear();
    return on_message(page, kAtHome, from, {.kind = kind, .content = content}, actions);
  }
  // A node asks, and the policy answers.
  void ask(NodeId node, Access access, Location answer) {
    ASSERT_TRUE(receive(node, access == Access::kRead ? MessageKind::kReadRequest : MessageKind::kWriteRequest));
    ASSERT_FALSE(actions.empty());
    const Action last = actions[actions.size() - 1];
    ASSERT_EQ(last.verb, Verb::kAskPolicy);
    ASSERT_EQ(last.node, node);
    ASSERT_EQ(last.access, access);
    actions.clear();
    on_decision(page, kAtHome, answer, actions);
  }
};

// These are pages in each of the three states.
Home read_only_at(std::initializer_list<NodeId> nodes) {
  Home home;
  for (const NodeId node : nodes) home.ask(node, Access::kRead, Location::kLocal);
  EXPECT_EQ(home.entry().placement, Placement::kReadOnly);
  return home;
}
Home writable_at(NodeId node) {
  Home home;
  home.ask(node, Access::kWrite, Location::kLocal);
  EXPECT_EQ(home.entry().placement, Placement::kLocalWritable);
  return home;
}
Home global_at(std::initializer_list<NodeId> nodes) {
  Home home;
  for (const NodeId node : nodes) home.ask(node, Access::kRead, Location::kGlobal);
  EXPECT_EQ(home.entry().placement, Placement::kGlobalWritable);
  return home;
}
NodeSet set_of(std::initializer_list<NodeId> nodes) {
  NodeSet all;
  for (const NodeId node : nodes) all.insert(node);
  return all;
}

// --- Figure 3.3: the state is read-only

TEST(Figure33, ReadOnlyReadLocalCopies) {
  Home home = read_only_at({kFirst});
  home.ask(kSecond, Access::kRead, Location::kLocal);
  EXPECT_EQ(grant_to(home.actions, kSecond).right, State::kRead);
  EXPECT_EQ(home.entry().placement, Placement::kReadOnly);
  EXPECT_EQ(home.entry().holders, set_of({kFirst, kSecond}));
  EXPECT_TRUE(sent_to(home.actions, kFirst).empty());
}

TEST(Figure33, ReadOnlyWriteLocalFlushesTheOthers) {
  Home home = read_only_at({kFirst, kSecond});
  home.ask(kFirst, Access::kWrite, Location::kLocal);
  EXPECT_EQ(sent_to(home.actions, kSecond), Kinds{MessageKind::kFlush});
  EXPECT_TRUE(sent_to(home.actions, kFirst).empty());
  EXPECT_TRUE(home.receive(kSecond, MessageKind::kFlushed));
  // The writer has a copy: it gets the right alone.
  const PageMessage grant = grant_to(home.actions, kFirst);
  EXPECT_EQ(grant.right, State::kWrite);
  EXPECT_EQ(grant.content, Content::kNone);
  EXPECT_EQ(home.entry().placement, Placement::kLocalWritable);
  EXPECT_EQ(home.entry().holders, set_of({kFirst}));
}

TEST(Figure33, ReadOnlyGlobalFlushesAll) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    const NodeId node = access == Access::kRead ? kThird : kFirst;  // kFirst has a copy, which is flushed as well
    Home home = read_only_at({kFirst, kSecond});
    home.ask(node, access, Location::kGlobal);
    EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kFlush});
    EXPECT_EQ(sent_to(home.actions, kSecond), Kinds{MessageKind::kFlush});
    EXPECT_TRUE(home.receive(kFirst, MessageKind::kFlushed));
    EXPECT_TRUE(sent_to(home.actions, node).empty());
    EXPECT_TRUE(home.receive(kSecond, MessageKind::kFlushed));
    EXPECT_EQ(grant_to(home.actions, node).right, State::kGlobal);
    EXPECT_EQ(home.entry().placement, Placement::kGlobalWritable);
    EXPECT_EQ(home.entry().holders, set_of({node}));
  }
}

// --- Figure 3.3: the state is local-writable

TEST(Figure33, WritableReadLocalSyncs) {
  Home home = writable_at(kFirst);
  home.ask(kSecond, Access::kRead, Location::kLocal);
  EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kSync});
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kSynced, Content::kPage));
  EXPECT_EQ(home.actions[0].verb, Verb::kTakePage);
  const PageMessage grant = grant_to(home.actions, kSecond);
  EXPECT_EQ(grant.right, State::kRead);
  EXPECT_EQ(grant.content, Content::kPage);
  EXPECT_EQ(home.entry().placement, Placement::kReadOnly);
  EXPECT_EQ(home.entry().holders, set_of({kFirst, kSecond}));
}

TEST(Figure33, WritableWriteLocalFlushes) {
  Home home = writable_at(kFirst);
  home.ask(kSecond, Access::kWrite, Location::kLocal);
  EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kFlush});
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kFlushed, Content::kPage));
  EXPECT_EQ(grant_to(home.actions, kSecond).right, State::kWrite);
  EXPECT_EQ(home.entry().placement, Placement::kLocalWritable);
  EXPECT_EQ(home.entry().holders, set_of({kSecond}));
}

TEST(Figure33, WritableGlobalFlushes) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    Home home = writable_at(kFirst);
    home.ask(kSecond, access, Location::kGlobal);
    EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kFlush});
    EXPECT_TRUE(home.receive(kFirst, MessageKind::kFlushed, Content::kPage));
    EXPECT_EQ(home.actions[0].verb, Verb::kTakePage);
    EXPECT_EQ(grant_to(home.actions, kSecond).right, State::kGlobal);
    EXPECT_EQ(grant_to(home.actions, kSecond).content, Content::kNone);
    EXPECT_EQ(home.entry().placement, Placement::kGlobalWritable);
    EXPECT_EQ(home.entry().holders, set_of({kSecond}));
  }
}

TEST(Figure33, OwnWritableLocalIsMappedAgain) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    Page page;
    Actions actions;
    EXPECT_EQ(on_fault(page, kAway, Access::kWrite, actions), FaultOutcome::kWait);
    EXPECT_TRUE(on_message(page, kAway, kHome,
                           {.kind = MessageKind::kGrant, .content = Content::kZeros, .right = State::kWrite}, actions));
    actions.clear();
    EXPECT_EQ(on_fault(page, kAway, access, actions), FaultOutcome::kResolved);
    EXPECT_EQ(verbs(actions), std::vector{Verb::kMapWrite});
  }
}

TEST(Figure33, OwnWritableGlobalIsFlushedByAPin) {
  Home home = writable_at(kFirst);
  home.actions.clear();
  on_pin(home.page, kAtHome, Pin::kGlobal, home.actions);
  EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kFlush});
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kFlushed, Content::kPage));
  EXPECT_EQ(home.entry().placement, Placement::kGlobalWritable);
  EXPECT_TRUE(home.entry().holders.empty());
  // The policy is not asked any more.
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kWriteRequest));
  EXPECT_EQ(verbs(home.actions), std::vector{Verb::kSend});
  EXPECT_EQ(grant_to(home.actions, kFirst).right, State::kGlobal);
}

// --- Figure 3.3: the state is global-writable

TEST(Figure33, GlobalLocalUnmapsAll) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    Home home = global_at({kFirst, kSecond});
    home.ask(kThird, access, Location::kLocal);
    EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kUnmap});
    EXPECT_EQ(sent_to(home.actions, kSecond), Kinds{MessageKind::kUnmap});
    EXPECT_TRUE(home.receive(kFirst, MessageKind::kUnmapped));
    EXPECT_TRUE(home.receive(kSecond, MessageKind::kUnmapped));
    const PageMessage grant = grant_to(home.actions, kThird);
    EXPECT_EQ(grant.content, Content::kPage);
    EXPECT_EQ(grant.right, access == Access::kRead ? State::kRead : State::kWrite);
    EXPECT_EQ(home.entry().placement, access == Access::kRead ? Placement::kReadOnly : Placement::kLocalWritable);
    EXPECT_EQ(home.entry().holders, set_of({kThird}));
  }
}

TEST(Figure33, GlobalGlobalTellsNobody) {
  for (const Access access : {Access::kRead, Access::kWrite}) {
    Home home = global_at({kFirst});
    home.ask(kSecond, access, Location::kGlobal);
    EXPECT_EQ(home.actions.size(), 1u);
    EXPECT_EQ(grant_to(home.actions, kSecond).right, State::kGlobal);
    EXPECT_EQ(home.entry().holders, set_of({kFirst, kSecond}));
  }
}

// --- Lazy zero fill

TEST(PlacementTransitions, WhatNobodyHasWrittenIsNotSent) {
  Home home = read_only_at({kFirst, kSecond});
  EXPECT_EQ(grant_to(home.actions, kSecond).content, Content::kZeros);
  home = writable_at(kFirst);
  EXPECT_EQ(grant_to(home.actions, kFirst).content, Content::kZeros);
  Home global = global_at({kFirst});
  EXPECT_EQ(grant_to(global.actions, kFirst).content, Content::kNone);
}

TEST(PlacementTransitions, TheHomeNeedsNoMessage) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAtHome, Access::kWrite, actions), FaultOutcome::kWait);
  EXPECT_EQ(verbs(actions), std::vector{Verb::kAskPolicy});
  actions.clear();
  on_decision(page, kAtHome, Location::kLocal, actions);
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kMapWrite, Verb::kWakeWriters}));
}

// --- The hold

TEST(PlacementTransitions, AnOrderWaitsForTheEndOfTheHold) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, Access::kWrite, actions), FaultOutcome::kWait);
  EXPECT_TRUE(on_message(page, kAway, kHome,
                         {.kind = MessageKind::kGrant, .content = Content::kPage, .right = State::kWrite}, actions));
  EXPECT_EQ(page.returning, 1);
  actions.clear();
  EXPECT_TRUE(on_message(page, kAway, kHome, {.kind = MessageKind::kFlush}, actions));
  EXPECT_EQ(verbs(actions), std::vector{Verb::kAwaitHold});
  on_returned(page);
  actions.clear();
  on_hold_over(page, kAway, actions);
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kRevoke, Verb::kSendPage}));
  EXPECT_EQ(page.state, State::kNone);
}

TEST(PlacementTransitions, ThreadsThatWaitToWriteAskAgain) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, Access::kRead, actions), FaultOutcome::kWait);
  actions.clear();
  EXPECT_EQ(on_fault(page, kAway, Access::kWrite, actions), FaultOutcome::kWait);
  EXPECT_TRUE(actions.empty());
  EXPECT_TRUE(on_message(page, kAway, kHome,
                         {.kind = MessageKind::kGrant, .content = Content::kPage, .right = State::kRead}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kTakePage, Verb::kMapRead, Verb::kWakeReaders, Verb::kSend}));
  EXPECT_EQ(sent_to(actions, kHome), Kinds{MessageKind::kWriteRequest});
  // Global memory serves both.
  Page other;
  actions.clear();
  EXPECT_EQ(on_fault(other, kAway, Access::kRead, actions), FaultOutcome::kWait);
  EXPECT_EQ(on_fault(other, kAway, Access::kWrite, actions), FaultOutcome::kWait);
  actions.clear();
  EXPECT_TRUE(on_message(other, kAway, kHome, {.kind = MessageKind::kGrant, .right = State::kGlobal}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kMapGlobal, Verb::kWakeReaders, Verb::kWakeWriters}));
}

// --- Requests that wait

TEST(PlacementTransitions, RequestsAreServedInTurn) {
  Home home = writable_at(kSecond);
  EXPECT_TRUE(home.receive(kThird, MessageKind::kWriteRequest));
  home.actions.clear();
  on_decision(home.page, kAtHome, Location::kLocal, home.actions);
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kWriteRequest));
  EXPECT_TRUE(home.actions.empty());
  EXPECT_TRUE(home.receive(NodeId(5), MessageKind::kReadRequest));
  EXPECT_TRUE(home.receive(kSecond, MessageKind::kFlushed, Content::kPage));
  // Node 3 has been served; node 5 is the next in turn, and then node 1.
  EXPECT_EQ(grant_to(home.actions, kThird).right, State::kWrite);
  EXPECT_EQ(home.actions[home.actions.size() - 1].verb, Verb::kAskPolicy);
  EXPECT_EQ(home.actions[home.actions.size() - 1].node, NodeId(5));
  home.actions.clear();
  on_decision(home.page, kAtHome, Location::kGlobal, home.actions);
  EXPECT_TRUE(home.receive(kThird, MessageKind::kFlushed, Content::kPage));
  EXPECT_EQ(home.actions[home.actions.size() - 1].node, kFirst);
}

// --- Thaws and discards

TEST(PlacementTransitions, AThawMakesNodesFaultAgain) {
  Home home = global_at({kFirst, kSecond});
  home.actions.clear();
  on_thaw(home.page, kAtHome, home.actions);
  EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kUnmap});
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kUnmapped));
  EXPECT_TRUE(home.receive(kSecond, MessageKind::kUnmapped));
  EXPECT_EQ(home.entry().placement, Placement::kGlobalWritable);
  EXPECT_TRUE(home.entry().holders.empty());
  home.ask(kFirst, Access::kWrite, Location::kLocal);
  EXPECT_EQ(grant_to(home.actions, kFirst).content, Content::kPage);

  Home pinned = global_at({kFirst});
  pinned.actions.clear();
  on_pin(pinned.page, kAtHome, Pin::kGlobal, pinned.actions);
  on_thaw(pinned.page, kAtHome, pinned.actions);
  EXPECT_TRUE(pinned.actions.empty());
}

TEST(PlacementTransitions, ADiscardedPageIsNew) {
  Home home = writable_at(kFirst);
  home.actions.clear();
  EXPECT_FALSE(on_discard(home.page, kAtHome, kSecond, home.actions));
  EXPECT_EQ(sent_to(home.actions, kFirst), Kinds{MessageKind::kDrop});
  EXPECT_TRUE(home.receive(kFirst, MessageKind::kFlushed));
  EXPECT_EQ(verbs(home.actions), (std::vector{Verb::kFillZeros, Verb::kForget, Verb::kSend}));
  EXPECT_EQ(sent_to(home.actions, kSecond), Kinds{MessageKind::kDiscarded});
  EXPECT_TRUE(on_discard(home.page, kAtHome, kSecond, home.actions));
  home.ask(kSecond, Access::kRead, Location::kLocal);
  EXPECT_EQ(grant_to(home.actions, kSecond).content, Content::kZeros);
}

// --- References

Page granted(State right, Content content) {
  Page page;
  Actions actions;
  EXPECT_EQ(on_fault(page, kAway, Access::kRead, actions), FaultOutcome::kWait);
  EXPECT_TRUE(
      on_message(page, kAway, kHome, {.kind = MessageKind::kGrant, .content = content, .right = right}, actions));
  on_returned(page);
  on_hold_over(page, kAway, actions);
  return page;
}

TEST(PlacementTransitions, APageStaysUntilAReferenceIsOver) {
  Page page = granted(State::kGlobal, Content::kNone);
  Actions actions;
  EXPECT_EQ(on_reference(page, kAway, Access::kWrite, actions), FaultOutcome::kResolved);
  EXPECT_TRUE(actions.empty());
  EXPECT_TRUE(on_message(page, kAway, kHome, {.kind = MessageKind::kUnmap}, actions));
  EXPECT_EQ(verbs(actions), std::vector{Verb::kAwaitHold});
  EXPECT_EQ(page.returning, 1);
  on_returned(page);
  actions.clear();
  on_hold_over(page, kAway, actions);
  EXPECT_EQ(sent_to(actions, kHome), Kinds{MessageKind::kUnmapped});
  EXPECT_EQ(page.state, State::kNone);
}

TEST(PlacementTransitions, AReferenceDoesNotOvertakeAnOrder) {
  Page page = granted(State::kGlobal, Content::kNone);
  Actions actions;
  EXPECT_EQ(on_reference(page, kAway, Access::kRead, actions), FaultOutcome::kResolved);
  EXPECT_TRUE(on_message(page, kAway, kHome, {.kind = MessageKind::kUnmap}, actions));
  actions.clear();
  EXPECT_EQ(on_reference(page, kAway, Access::kRead, actions), FaultOutcome::kWait);
  EXPECT_EQ(sent_to(actions, kHome), Kinds{MessageKind::kReadRequest});
  EXPECT_EQ(page.returning, 1);
}

TEST(PlacementTransitions, AReferenceBehindASyncIsGrantedTheCopyThatIsLeft) {
  Page page = granted(State::kWrite, Content::kPage);
  Actions actions;
  EXPECT_EQ(on_reference(page, kAway, Access::kRead, actions), FaultOutcome::kResolved);
  EXPECT_TRUE(on_message(page, kAway, kHome, {.kind = MessageKind::kSync}, actions));
  EXPECT_EQ(on_reference(page, kAway, Access::kRead, actions), FaultOutcome::kWait);
  on_returned(page);
  on_hold_over(page, kAway, actions);
  EXPECT_EQ(page.state, State::kRead);
  actions.clear();
  EXPECT_TRUE(on_message(page, kAway, kHome, {.kind = MessageKind::kGrant, .right = State::kRead}, actions));
  EXPECT_EQ(verbs(actions), (std::vector{Verb::kMapRead, Verb::kWakeReaders}));
}

// --- Each of these would end the run

TEST(PlacementTransitions, RefuseWhatNoCorrectNodeSends) {
  Actions actions;
  const auto refuses = [&](Page page, const Context& context, NodeId from, const PageMessage& message) {
    actions.clear();
    return !on_message(page, context, from, message, actions);
  };
  Home home = writable_at(kFirst);
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kReadRequest}));  // it has the page
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kFlushed, .content = Content::kPage}));
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kGrant, .right = State::kRead}));
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kDiscarded}));
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kKindCount}));
  home.ask(kSecond, Access::kWrite, Location::kLocal);
  EXPECT_TRUE(refuses(home.page, kAtHome, kSecond, {.kind = MessageKind::kReadRequest}));  // it is being served
  EXPECT_TRUE(refuses(home.page, kAtHome, kThird, {.kind = MessageKind::kFlushed, .content = Content::kPage}));
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kFlushed}));  // without the page
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kSynced, .content = Content::kPage}));
  EXPECT_TRUE(refuses(home.page, kAtHome, kFirst, {.kind = MessageKind::kUnmapped}));

  Page away;
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kReadRequest}));  // this is not the home
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kGrant, .right = State::kGlobal}));  // nobody asked
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kFlush}));
  EXPECT_EQ(on_fault(away, kAway, Access::kRead, actions), FaultOutcome::kWait);
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kGrant, .right = State::kRead}));  // without the page
  EXPECT_TRUE(
      refuses(away, kAway, kHome, {.kind = MessageKind::kGrant, .content = Content::kPage, .right = State::kNone}));
  EXPECT_TRUE(
      refuses(away, kAway, kHome, {.kind = MessageKind::kGrant, .content = Content::kPage, .right = State::kGlobal}));
  EXPECT_TRUE(
      refuses(away, kAway, kSecond, {.kind = MessageKind::kGrant, .content = Content::kPage, .right = State::kRead}));
  EXPECT_TRUE(on_message(away, kAway, kHome,
                         {.kind = MessageKind::kGrant, .content = Content::kPage, .right = State::kRead}, actions));
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kSync}));  // the copy cannot be written
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kUnmap}));
  EXPECT_TRUE(on_message(away, kAway, kHome, {.kind = MessageKind::kFlush}, actions));
  EXPECT_TRUE(refuses(away, kAway, kHome, {.kind = MessageKind::kFlush}));  // it waits for the end of the hold
}

}  // namespace
}  // namespace multigrain::placement
