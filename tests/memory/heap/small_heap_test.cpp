#include "memory/heap/small_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "support/effort.h"

namespace multigrain {
namespace {

constexpr Placement kInterleaved{};

// This is a small heap with a manager that hands out the region from its start.
class Fed {
 public:
  explicit Fed(size_t page_size = 4096)
      : geometry{uint64_t{1} << 45, uint64_t{1} << 30, page_size, 3}, heap(geometry) {}

  SmallBlock allocate(unsigned size_class, const Placement& placement = kInterleaved) {
    std::optional<SmallBlock> block = heap.allocate(size_class, placement);
    if (!block) {
      const SmallHeap::PageRequest request = heap.next_request(placement);
      EXPECT_LE(request.minimum, request.pages);
      EXPECT_EQ(request.pages % request.minimum, 0u);
      heap.add_superblocks(PageId(next_page), request.pages, placement);
      for (uint64_t i = 0; i < request.pages; ++i) placement_of.push_back(placement);
      next_page += request.pages;
      block = heap.allocate(size_class, placement);
    }
    EXPECT_TRUE(block);
    EXPECT_EQ(placement_of.at(block->offset / geometry.page_size), placement);
    return *block;
  }
  SmallBlock allocate_bytes(uint64_t size) { return allocate(*heap.class_for(size, 16)); }

  HeapGeometry geometry;
  SmallHeap heap;
  uint64_t next_page = 0;
  std::vector<Placement> placement_of;  // the placement of each page
};

TEST(SmallHeapTest, ClassesFitTightly) {
  for (size_t page_size : {4096u, 16384u, 65536u}) {
    Fed fed(page_size);
    for (uint64_t size = 1; size <= page_size * 7 / 8; ++size) {
      const auto size_class = fed.heap.class_for(size, 16);
      ASSERT_TRUE(size_class) << size;
      const uint64_t got = fed.heap.class_size(*size_class);
      ASSERT_GE(got, size);
      ASSERT_LE(got, size <= 128 ? size + 15 : size + size / 4);
      ASSERT_EQ(got % 16, 0u);
    }
    EXPECT_FALSE(fed.heap.class_for(page_size * 7 / 8 + 1, 16)) << "nearly a page: a page of its own";
    EXPECT_FALSE(fed.heap.class_for(page_size, 16));
    for (uint64_t alignment = 16; alignment < page_size; alignment *= 2) {
      for (uint64_t size : {uint64_t{1}, alignment - 1, alignment}) {
        const auto size_class = fed.heap.class_for(size, alignment);
        ASSERT_TRUE(size_class) << size << " at " << alignment;
        EXPECT_EQ(fed.heap.class_size(*size_class) % alignment, 0u);
      }
    }
  }
}

class SmallRandomTest : public ::testing::TestWithParam<int> {};

TEST_P(SmallRandomTest, AgreesWithTheModel) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  Fed fed(size_t{4096} << random() % 5);
  const Placement placements[] = {kInterleaved, {HomePolicy::kFirstTouch, NodeId(0)}, {HomePolicy::kNode, NodeId(2)}};
  std::map<uint64_t, uint32_t> in_use;  // offset -> size
  std::set<uint64_t> ever_used;         // granules of 16 bytes
  for (int step = 0; step < effort(20000, 6000); ++step) {
    const bool grow = random() % 10 < (step / 2000 % 2 == 0 ? 7u : 3u);
    if (grow || in_use.empty()) {
      const uint64_t limit = random() % 3 == 0 ? fed.geometry.page_size * 7 / 8 : 200;
      const uint64_t alignment = random() % 4 == 0 ? uint64_t{16} << random() % 4 : 16;
      const auto size_class = fed.heap.class_for(1 + random() % limit, alignment);
      if (!size_class) continue;
      const uint32_t size = fed.heap.class_size(*size_class);
      const SmallBlock block = fed.allocate(*size_class, placements[random() % 3]);
      ASSERT_EQ(block.offset % alignment, 0u);
      const auto above = in_use.lower_bound(block.offset);
      if (above != in_use.end()) {
        ASSERT_LE(block.offset + size, above->first);
      }
      if (above != in_use.begin()) {
        ASSERT_LE(std::prev(above)->first + std::prev(above)->second, block.offset);
      }
      bool used_before = false;
      for (uint64_t at = block.offset; at < block.offset + size; at += 16) used_before |= !ever_used.insert(at).second;
      ASSERT_TRUE(block.needs_clearing || !used_before);
      in_use[block.offset] = size;
    } else {
      auto victim = in_use.lower_bound(random() % (fed.next_page * fed.geometry.page_size));
      if (victim == in_use.end()) victim = in_use.begin();
      ASSERT_EQ(fed.heap.size_of(victim->first), victim->second);
      ASSERT_FALSE(fed.heap.free(victim->first + 8)) << "inside a block";
      ASSERT_TRUE(fed.heap.free(victim->first));
      ASSERT_FALSE(fed.heap.free(victim->first)) << "freed twice";
      ASSERT_EQ(fed.heap.size_of(victim->first), std::nullopt);
      in_use.erase(victim);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SmallRandomTest, ::testing::Range(1, 11));

TEST(SmallHeapTest, FreshBlocksNeedNoClearingAndUsedOnesDo) {
  Fed fed;
  const SmallBlock first = fed.allocate_bytes(100);
  const SmallBlock second = fed.allocate_bytes(100);
  EXPECT_FALSE(first.needs_clearing);
  EXPECT_FALSE(second.needs_clearing);
  fed.heap.free(first.offset);
  const SmallBlock again = fed.allocate_bytes(100);
  EXPECT_EQ(again.offset, first.offset);
  EXPECT_TRUE(again.needs_clearing);
  EXPECT_FALSE(fed.allocate_bytes(100).needs_clearing);
}

TEST(SmallHeapTest, AnEmptySuperblockServesAnotherClassAndIsDirtyWhereItWasUsed) {
  Fed fed;
  const SmallBlock before = fed.allocate_bytes(16);
  fed.heap.free(before.offset);
  const uint64_t pages = fed.next_page;
  const SmallBlock after = fed.allocate_bytes(1024);
  EXPECT_EQ(fed.next_page, pages) << "the empty superblock is used first";
  EXPECT_EQ(after.offset, before.offset);
  EXPECT_TRUE(after.needs_clearing);
  EXPECT_FALSE(fed.allocate_bytes(1024).needs_clearing);
}

TEST(SmallHeapTest, MemoryDoesNotGrowWhenBlocksComeAndGo) {
  Fed fed;
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 3000; ++i) blocks.push_back(fed.allocate_bytes(48).offset);
    for (uint64_t offset : blocks) ASSERT_TRUE(fed.heap.free(offset));
  }
  EXPECT_LE(fed.next_page * 4096, uint64_t{4} * 3000 * 48);
}

TEST(SmallHeapTest, ForeignOffsetsAreNoBlocks) {
  Fed fed;
  const SmallBlock block = fed.allocate_bytes(3584);  // 18 of them in 64 KiB, and a rest
  EXPECT_FALSE(fed.heap.free(fed.geometry.size));
  EXPECT_FALSE(fed.heap.free(~uint64_t{0}));
  EXPECT_FALSE(fed.heap.free(uint64_t{1} << 29)) << "a page that is not a superblock's";
  EXPECT_FALSE(fed.heap.free(block.offset + 3584)) << "never handed out";
  EXPECT_FALSE(fed.heap.free(block.offset + 18 * 3584)) << "behind the last block";
  EXPECT_TRUE(fed.heap.free(block.offset));
}

}  // namespace
}  // namespace multigrain
