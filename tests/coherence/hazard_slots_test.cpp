// These test a node's rights epoch (coherence/hazard_slots.h).
#include "coherence/hazard_slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <set>
#include <span>

namespace multigrain {
namespace {

class HazardSlotsTest : public testing::Test {
 protected:
  void SetUp() override {
    memory_ = mmap(nullptr, words::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
  }
  void TearDown() override { munmap(memory_, words::kBytes); }
  [[nodiscard]] std::span<std::byte> segment() const { return {static_cast<std::byte*>(memory_), words::kBytes}; }

  void* memory_ = nullptr;
};

TEST_F(HazardSlotsTest, InvalidatingTheRightsCacheReplacesAnEpochThatSaysRightsAreCached) {
  HazardSlots slots(NodeId(3), segment());
  std::atomic<uint64_t>& epoch = slots.rights_epoch();
  uint64_t at_word = 0;
  std::set<uint64_t> before;
  for (unsigned i = 0; i < 10; ++i) {
    before.insert(epoch.load());
    epoch.fetch_or(MG_FINE_EPOCH_CACHED);
    slots.invalidate_rights_cache();
    EXPECT_EQ(epoch.load() & 3, 0u);
    EXPECT_EQ(before.count(epoch.load()), 0u);
  }
  // The rights epoch is where requesters look for it, and shares no place with a hazard.
  std::memcpy(&at_word, segment().data() + words::kRightsEpoch, sizeof at_word);
  EXPECT_EQ(at_word, epoch.load());
  EXPECT_GE(slots.take(), reinterpret_cast<uint64_t*>(segment().data() + words::kRightsEpoch) + 1);
}

TEST_F(HazardSlotsTest, InvalidatingTheRightsCacheLeavesAnEpochThatSaysNothingIsCached) {
  HazardSlots slots(NodeId(0), segment());
  slots.invalidate_rights_cache();
  EXPECT_EQ(slots.rights_epoch().load(), 0u);
  slots.rights_epoch().store(MG_FINE_EPOCH_CACHED);
  slots.invalidate_rights_cache();
  const uint64_t epoch = slots.rights_epoch().load();
  slots.invalidate_rights_cache();
  EXPECT_EQ(slots.rights_epoch().load(), epoch);
}

TEST(NewEpoch, AreNeverTheSame) {
  std::set<uint64_t> all = {0};  // 0 is the first value of every rights epoch
  for (uint16_t by = 0; by < MG_FINE_MAX_NODES; ++by)
    for (unsigned i = 0; i < 10; ++i) {
      const uint64_t epoch = fresh_rights_epoch(NodeId(by));
      EXPECT_EQ(epoch & 3, 0u);
      // Nodes do not know each other's values, so each value names the node that made it.
      EXPECT_EQ(epoch >> 48, by + 1u);
      EXPECT_TRUE(all.insert(epoch).second);
    }
}

}  // namespace
}  // namespace multigrain
