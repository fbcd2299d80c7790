// These test the parts of Shasta's transitions that the explorations use only a little of, and messages that cannot
// have been sent.
#include <gtest/gtest.h>

#include "coherence/shasta/transitions.h"

namespace multigrain::shasta {
namespace {

constexpr NodeId kHome(0);
constexpr NodeId kSelf(1);
constexpr NodeId kOther(2);

TEST(ShastaEpochs, AFenceWaitsForWhatBeganBeforeItAndForNothingElse) {
  FenceEpochs epochs;
  EXPECT_TRUE(epochs.has_passed(epochs.fence())) << "nothing is outstanding";
  const uint64_t first = epochs.begin();
  const uint64_t fence = epochs.fence();
  const uint64_t second = epochs.begin();
  EXPECT_NE(first, second);
  EXPECT_FALSE(epochs.has_passed(fence));
  epochs.end(first);
  EXPECT_TRUE(epochs.has_passed(fence));
  EXPECT_FALSE(epochs.idle());
  epochs.end(second);
  EXPECT_TRUE(epochs.idle());
}

TEST(ShastaEpochs, ALaterEpochThatEndsFirstDoesNotLetAFencePass) {
  FenceEpochs epochs;
  const uint64_t first = epochs.begin();
  const uint64_t fence = epochs.fence();
  const uint64_t second = epochs.begin();
  const uint64_t later = epochs.fence();
  epochs.end(second);
  EXPECT_FALSE(epochs.has_passed(fence));
  EXPECT_FALSE(epochs.has_passed(later));
  // A fence of an empty epoch waits for the ones before, too.
  const uint64_t empty = epochs.fence();
  EXPECT_FALSE(epochs.has_passed(empty));
  epochs.end(first);
  EXPECT_TRUE(epochs.has_passed(fence) && epochs.has_passed(later) && epochs.has_passed(empty));
}

TEST(ShastaEpochs, HoldAFenceOfEveryProcessorAtOnce) {
  FenceEpochs epochs;
  std::array<uint64_t, ProcessorSet::kCapacity> begun{};
  std::array<uint64_t, ProcessorSet::kCapacity> fences{};
  for (unsigned p = 0; p < ProcessorSet::kCapacity; ++p) {
    begun[p] = epochs.begin();
    fences[p] = epochs.fence();
  }
  for (unsigned p = ProcessorSet::kCapacity; p-- > 1;) epochs.end(begun[p]);
  for (const uint64_t fence : fences) EXPECT_FALSE(epochs.has_passed(fence));
  epochs.end(begun[0]);
  for (const uint64_t fence : fences) EXPECT_TRUE(epochs.has_passed(fence));
}

TEST(ShastaStoreQueue, KeepsOrderAndTellsWhatItMasks) {
  StoreQueue queue;
  queue.push({.block = BlockId(1), .waits = true});
  queue.push({.block = BlockId(2)});
  queue.push({.block = BlockId(1)});
  EXPECT_EQ(queue.find(BlockId(1)), 0u);
  EXPECT_EQ(queue.find(BlockId(2)), 1u);
  EXPECT_EQ(queue.find(BlockId(3)), queue.size());
  EXPECT_TRUE(queue.has_waiting());
  EXPECT_TRUE(queue.masks(BlockId(1)));
  queue.erase(0);
  EXPECT_EQ(queue.find(BlockId(1)), 1u);
  EXPECT_FALSE(queue.has_waiting());
  queue.erase(1);
  EXPECT_FALSE(queue.masks(BlockId(1)));
  EXPECT_TRUE(queue.masks(BlockId(2)));
}

class ShastaHostile : public testing::Test {
 protected:
  bool receive(Block& block, const Context& context, NodeId from, BlockMessage message) {
    actions_.clear();
    return on_message(block, context, node_, from, message, actions_);
  }
  const Context context_{.self = kSelf, .home = kHome, .block = BlockId(7), .model = Model::kRc};
  const Context home_{.self = kHome, .home = kHome, .block = BlockId(7), .model = Model::kRc};
  std::array<Processor, 2> processors_{};
  FenceEpochs epochs_;
  Node node_{.processors = processors_, .epochs = epochs_};
  Actions actions_;
};

TEST_F(ShastaHostile, AnInvalidBlockThatAsksForNothingTakesNoMessage) {
  for (unsigned kind = 0; kind <= static_cast<unsigned>(MessageKind::kKindCount); ++kind)
    for (const NodeId from : {kHome, kOther}) {
      Block block = initial_block(context_);
      EXPECT_FALSE(
          receive(block, context_, from, {.kind = static_cast<MessageKind>(kind), .requester = kOther, .acks = 1}))
          << kind << " from " << from.value;
      EXPECT_EQ(block, initial_block(context_)) << "a refused message changes nothing";
    }
}

TEST_F(ShastaHostile, OnlyTheHomeForwardsAndInvalidates) {
  for (const MessageKind kind :
       {MessageKind::kForwardRead, MessageKind::kForwardReadExclusive, MessageKind::kInvalidate}) {
    Block block = initial_block(context_);
    block.state = kind == MessageKind::kInvalidate ? State::kShared : State::kExclusive;
    const Block before = block;
    EXPECT_FALSE(receive(block, context_, kOther, {.kind = kind, .requester = kOther}));
    EXPECT_FALSE(receive(block, context_, kHome, {.kind = kind, .requester = kSelf})) << "on its own behalf";
    EXPECT_EQ(block, before);
    EXPECT_TRUE(receive(block, context_, kHome, {.kind = kind, .requester = kOther})) << name(kind);
  }
}

TEST_F(ShastaHostile, ASharerDoesNotAskForWhatItHas) {
  Block block = initial_block(home_);
  ASSERT_TRUE(receive(block, home_, kOther, {.kind = MessageKind::kRead, .requester = kOther}));
  EXPECT_FALSE(receive(block, home_, kOther, {.kind = MessageKind::kRead, .requester = kOther}));
  EXPECT_FALSE(receive(block, home_, kOther, {.kind = MessageKind::kReadExclusive, .requester = kOther}));
  EXPECT_FALSE(receive(block, context_, kOther, {.kind = MessageKind::kUpgrade, .requester = kOther}))
      << "not its home";
}

TEST_F(ShastaHostile, MoreAcknowledgementsThanInvalidationsAreRefused) {
  Block block = initial_block(context_);
  actions_.clear();
  ASSERT_EQ(on_store(block, context_, node_, 0, actions_), Outcome::kQueued);
  ASSERT_TRUE(receive(block, context_, kOther, {.kind = MessageKind::kInvalidated, .requester = kSelf}));
  ASSERT_TRUE(receive(block, context_, NodeId(3), {.kind = MessageKind::kInvalidated, .requester = kSelf}));
  EXPECT_FALSE(receive(block, context_, kHome, {.kind = MessageKind::kDataExclusive, .requester = kSelf, .acks = 1}));
}

TEST_F(ShastaHostile, AReplyOfAnotherKindIsRefused) {
  Block block = initial_block(context_);
  actions_.clear();
  ASSERT_EQ(on_load(block, context_, node_, 0, actions_), Outcome::kWait);
  for (const MessageKind kind : {MessageKind::kDataExclusive, MessageKind::kUpgraded, MessageKind::kInvalidated})
    EXPECT_FALSE(receive(block, context_, kHome, {.kind = kind, .requester = kSelf})) << name(kind);
  EXPECT_TRUE(receive(block, context_, kHome, {.kind = MessageKind::kData, .requester = kSelf}));
}

// A processor that has been granted a hazard keeps the block until the hazard is published, and no longer than that.
TEST_F(ShastaHostile, AGrantedHazardHoldsTheBlockUntilItIsOpen) {
  Block block = initial_block(context_);
  actions_.clear();
  ASSERT_EQ(on_request_hazard(block, context_, node_, 1, actions_), Outcome::kQueued);
  ASSERT_TRUE(must_wait(processors_[1]));
  ASSERT_TRUE(receive(block, context_, kHome, {.kind = MessageKind::kDataExclusive, .requester = kSelf}));
  EXPECT_FALSE(must_wait(processors_[1]));
  EXPECT_EQ(inline_right(block, context_, node_), Right::kWrite);
  ASSERT_TRUE(receive(block, context_, kHome, {.kind = MessageKind::kForwardReadExclusive, .requester = kOther}));
  EXPECT_EQ(actions_.size(), 0u);
  EXPECT_EQ(block.state, State::kExclusive);
  EXPECT_TRUE(on_hazard_published(block, 1));
  actions_.clear();
  on_advance(block, context_, node_, actions_);
  ASSERT_GE(actions_.size(), 4u);
  EXPECT_EQ(actions_[0].verb, Verb::kLowerToInvalid);
  EXPECT_EQ(actions_[1].verb, Verb::kCopy);
  EXPECT_EQ(actions_[2].verb, Verb::kWriteFlags);
  EXPECT_EQ(actions_[3].verb, Verb::kSendCopy);
  EXPECT_EQ(block.state, State::kInvalid);
  EXPECT_TRUE(block.is_at_rest());
}

}  // namespace
}  // namespace multigrain::shasta
