// The values behind mgrun --check: records and redzones of blocks, and cycles in the order of locks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "check/guarded_block.h"
#include "check/lock_order.h"

namespace multigrain::check {
namespace {

TEST(GuardedBlock, ARequestHasRoomForRedzoneAndRecord) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16}, size_t{4096}, size_t{1} << 40}) {
    const auto all = with_redzone(size);
    ASSERT_TRUE(all);
    EXPECT_GE(*all, size + kLeastRedzone + kTail);
    EXPECT_EQ(*all % 16, 0u);
  }
  EXPECT_FALSE(with_redzone(SIZE_MAX));
  EXPECT_FALSE(with_redzone(SIZE_MAX - kTail));
}

TEST(GuardedBlock, ARecordIsIntactUntilAnyOfItsBytesChanges) {
  constexpr size_t kUsable = 256;
  BlockRecord record{.block = 0x1000, .size = 100, .made_at = 1, .freed_at = 2, .made_by = 3, .freed_by = 4};
  record.seal();
  EXPECT_TRUE(record.is_intact(0x1000, kUsable));
  EXPECT_FALSE(record.is_intact(0x1010, kUsable));
  EXPECT_FALSE(record.is_intact(0x1000, 100)) << "the size has no room for the redzone";
  for (size_t i = 0; i < sizeof record; ++i) {
    BlockRecord other = record;
    reinterpret_cast<unsigned char*>(&other)[i] ^= 1;
    EXPECT_FALSE(other.is_intact(0x1000, kUsable)) << i;
  }
  EXPECT_FALSE(BlockRecord().is_intact(0, kUsable)) << "zeroes are no record";
}

TEST(GuardedBlock, DamageHasItsFirstAndLastByte) {
  std::vector<uint8_t> bytes(100, kRedzoneByte);
  EXPECT_FALSE(find_damage(bytes, kRedzoneByte));
  EXPECT_FALSE(find_damage({}, kRedzoneByte));
  bytes[40] = 1;
  EXPECT_EQ(find_damage(bytes, kRedzoneByte)->first, 40u);
  EXPECT_EQ(find_damage(bytes, kRedzoneByte)->last, 40u);
  bytes[99] = 0;
  EXPECT_EQ(find_damage(bytes, kRedzoneByte)->last, 99u);
}

class Orders : public testing::Test {
 protected:
  // The processor takes the locks one after the other and lets them all go.
  void take(uint32_t processor, const std::vector<uint64_t>& locks) {
    std::vector<HeldLockPlace> held;
    for (const uint64_t lock : locks) {
      const HeldLockPlace place{.lock = lock, .site = 100 * processor + lock};
      if (!held.empty()) order_.note(held, place, processor);
      held.push_back(place);
    }
  }
  [[nodiscard]] std::vector<LockCycle> cycles() const { return find_cycles(order_.edges(), 10); }
  LockOrder order_;
};

TEST_F(Orders, OneOrderIsNoCycle) {
  for (uint32_t processor = 0; processor < 3; ++processor) take(processor, {1, 2, 3});
  EXPECT_TRUE(cycles().empty());
}

TEST_F(Orders, TwoOrdersOfTwoProcessorsAre) {
  take(0, {1, 2});
  take(1, {2, 1});
  const auto found = cycles();
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].size(), 2u);
  EXPECT_EQ(found[0][0].held.lock, 1u);
  EXPECT_EQ(found[0][0].wanted.site, 2u);
  EXPECT_EQ(found[0][1].held.site, 102u);
  EXPECT_EQ(found[0][1].processor, 1u);
}

TEST_F(Orders, OfOneProcessorTheyAreNone) {
  take(0, {1, 2});
  take(0, {2, 1});
  EXPECT_TRUE(cycles().empty());
}

TEST_F(Orders, UnderOneGateTheyAreNone) {
  take(0, {9, 1, 2});
  take(1, {9, 2, 1});
  EXPECT_TRUE(cycles().empty());
  take(2, {8, 2, 1});
  EXPECT_EQ(cycles().size(), 1u) << "the other gate does not keep it from the first processor's";
}

TEST_F(Orders, ACycleOfThreeNeedsThreeProcessors) {
  take(0, {1, 2});
  take(1, {2, 3});
  take(0, {3, 1});
  EXPECT_TRUE(cycles().empty());
  take(2, {3, 1});
  ASSERT_EQ(cycles().size(), 1u);
  EXPECT_EQ(cycles()[0].size(), 3u);
}

TEST_F(Orders, EachSetOfLocksIsToldOnce) {
  for (uint32_t processor = 0; processor < 4; ++processor) {
    take(processor, {1, 2});
    take(processor, {2, 1});
    take(processor, {3, 4});
    take(processor, {4, 3});
  }
  EXPECT_EQ(cycles().size(), 2u);
}

TEST_F(Orders, APairKeepsFewEdges) {
  for (uint32_t processor = 0; processor < 100; ++processor) take(processor, {1, 2});
  EXPECT_EQ(order_.edges().size(), LockOrder::kMostOfPair);
  EXPECT_EQ(order_.lost(), 0u);
}

TEST_F(Orders, ManyLocksDoNotTakeForEver) {
  for (uint64_t lock = 1; lock < 200; ++lock)
    for (uint64_t other = lock + 1; other < 200; ++other) take(static_cast<uint32_t>(lock), {lock, other});
  EXPECT_TRUE(cycles().empty());
}

}  // namespace
}  // namespace multigrain::check
