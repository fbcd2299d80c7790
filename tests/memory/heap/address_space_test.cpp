#include "memory/heap/address_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

#include "memory/layout.h"

namespace multigrain {
namespace {

constexpr Placement kInterleaved{};
constexpr Placement kBlocked{HomePolicy::kBlocked, NodeId(0)};
constexpr Placement kFirstTouch{HomePolicy::kFirstTouch, NodeId(0)};
Placement on_node(uint16_t node) {
  return {HomePolicy::kNode, NodeId(node)};
}

HeapGeometry geometry(uint64_t size, unsigned nodes = 3, size_t page_size = 4096, uint64_t base = uint64_t{1} << 45) {
  return HeapGeometry{base, size, page_size, nodes};
}

// This is an address space beside the simplest description of what it must do.
class Checked {
 public:
  explicit Checked(const HeapGeometry& g) : geometry(g), space(g, extents) {}

  std::optional<PageRun> allocate(uint64_t pages, uint64_t alignment, const Placement& placement) {
    const std::optional<PageRun> run = space.allocate(pages, alignment, placement);
    if (!run) return run;
    EXPECT_EQ(run->pages, pages);
    EXPECT_LE(run->first.value + pages, geometry.pages());
    EXPECT_EQ((geometry.base + run->first.value * geometry.page_size) % (alignment * geometry.page_size), 0u);
    const auto above = in_use.lower_bound(run->first.value);
    if (above != in_use.end()) {
      EXPECT_LE(run->first.value + pages, above->first) << "overlaps the next block";
    }
    if (above != in_use.begin()) {
      EXPECT_LE(std::prev(above)->first + std::prev(above)->second, run->first.value) << "overlaps the block before";
    }
    in_use[run->first.value] = pages;
    check_homes(*run, placement);
    return run;
  }

  void free(uint64_t first) {
    EXPECT_EQ(space.pages_of(PageId(first)), in_use.at(first));
    EXPECT_TRUE(space.free(PageId(first)));
    EXPECT_FALSE(space.free(PageId(first))) << "freed twice";
    in_use.erase(first);
  }

  const HeapGeometry geometry;
  ExtentTable extents{1 << 16};
  AddressSpace space;
  std::map<uint64_t, uint64_t> in_use;  // first page -> pages

 private:
  void check_homes(const PageRun& run, const Placement& placement) {
    for (uint64_t i = 0; i < run.pages; ++i) {
      const uint64_t page = run.first.value + i;
      const std::optional<Extent> extent = extents.find(PageId(page));
      ASSERT_TRUE(extent);
      ASSERT_FALSE(extent->has_owner());
      const std::optional<NodeId> home = home_in(*extent, PageId(page), geometry.nodes);
      const auto [known, fresh] = home_ever.emplace(page, home);
      ASSERT_EQ(known->second, home) << "the home of page " << page << " changed";
      ASSERT_TRUE(fresh || run.needs_clearing) << "page " << page << " was in use before";
      switch (placement.policy) {
        case HomePolicy::kInterleaved:
          ASSERT_EQ(home, NodeId(static_cast<uint16_t>(page % geometry.nodes)));
          break;
        case HomePolicy::kBlocked:
          ASSERT_EQ(home, NodeId(static_cast<uint16_t>(i * geometry.nodes / run.pages)));
          break;
        case HomePolicy::kNode:
          ASSERT_EQ(home, placement.node);
          break;
        case HomePolicy::kFirstTouch:
          ASSERT_EQ(home, std::nullopt);
          ASSERT_EQ(extent->placement.policy, HomePolicy::kFirstTouch);
          break;
      }
    }
  }

  std::unordered_map<uint64_t, std::optional<NodeId>> home_ever;
};

class RandomTest : public ::testing::TestWithParam<int> {};

TEST_P(RandomTest, AgreesWithTheModel) {
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  const unsigned nodes = 1 + static_cast<unsigned>(random() % 5);
  const size_t page_size = size_t{4096} << random() % 5;
  // Regions are of sizes from those that fill up all the time to those that never do. Some bases are aligned to a page
  // only.
  const uint64_t size = page_size * (64 + random() % 20000);
  const uint64_t base = (uint64_t{1} << 45) + (random() % 2) * page_size * 3;
  Checked heap(geometry(size, nodes, page_size, base));
  int refused = 0;
  for (int step = 0; step < 3000; ++step) {
    // There are phases of growth and of shrinking.
    const bool grow = random() % 10 < (step / 300 % 2 == 0 ? 7u : 3u);
    if (grow || heap.in_use.empty()) {
      const uint64_t pages = random() % 4 == 0 ? 1 + random() % 200 : 1 + random() % 6;
      const uint64_t alignment = random() % 4 == 0 ? uint64_t{1} << random() % 7 : 1;
      const Placement placements[] = {kInterleaved, kBlocked, kFirstTouch,
                                      on_node(static_cast<uint16_t>(random() % nodes))};
      if (!heap.allocate(pages, alignment, placements[random() % 4])) ++refused;
    } else {
      auto victim = heap.in_use.lower_bound(random() % heap.geometry.pages());
      if (victim == heap.in_use.end()) victim = heap.in_use.begin();
      if (victim->second > 1) {
        EXPECT_FALSE(heap.space.free(PageId(victim->first + 1))) << "inside a block";
      }
      heap.free(victim->first);
    }
    if (HasFatalFailure()) return;
  }
  RecordProperty("refused", refused);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomTest, ::testing::Range(1, 25));

TEST(AddressSpaceTest, FreshPagesNeedNoClearingAndUsedOnesDo) {
  Checked heap(geometry(uint64_t{1} << 30));
  const auto first = heap.allocate(10, 1, kInterleaved);
  EXPECT_FALSE(first->needs_clearing);
  heap.free(first->first.value);
  const auto again = heap.allocate(10, 1, kInterleaved);
  EXPECT_EQ(again->first, first->first);
  EXPECT_TRUE(again->needs_clearing);
}

TEST(AddressSpaceTest, ReuseRespectsPlacement) {
  Checked heap(geometry(uint64_t{1} << 30));
  const auto blocked = heap.allocate(10, 1, kBlocked);
  heap.free(blocked->first.value);
  EXPECT_NE(heap.allocate(10, 1, kInterleaved)->first, blocked->first);
  EXPECT_NE(heap.allocate(9, 1, kBlocked)->first, blocked->first) << "another size has other homes";
  EXPECT_EQ(heap.allocate(10, 1, kBlocked)->first, blocked->first);

  const auto on_1 = heap.allocate(10, 1, on_node(1));
  heap.free(on_1->first.value);
  EXPECT_NE(heap.allocate(10, 1, on_node(2))->first, on_1->first);
  EXPECT_EQ(heap.allocate(4, 1, on_node(1))->first, on_1->first) << "a part of it will do";
}

TEST(AddressSpaceTest, FreedNeighboursJoin) {
  // The whole region is used in blocks of odd sizes, the blocks are freed, and one block takes the whole region.
  Checked heap(geometry(4096 * 1000));
  std::mt19937 random(7);
  while (heap.allocate(1 + random() % 7, 1, kInterleaved)) {
  }
  while (heap.allocate(1, 1, kInterleaved)) {
  }
  uint64_t used = 0;
  for (const auto& [first, pages] : heap.in_use) used += pages;
  EXPECT_EQ(used, 1000u) << "no page may be lost";
  std::vector<uint64_t> blocks;
  for (const auto& [first, pages] : heap.in_use) blocks.push_back(first);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (uint64_t first : blocks) heap.free(first);
  ASSERT_TRUE(heap.allocate(1000, 1, kInterleaved));
  EXPECT_FALSE(heap.allocate(1, 1, kInterleaved));
}

TEST(AddressSpaceTest, JoinsCleanAndUsedPagesOnlyWhenNothingElseIsLeft) {
  Checked heap(geometry(uint64_t{256} << 20));  // chunks of 1 MiB
  const auto small = heap.allocate(1, 1, kInterleaved);
  heap.free(small->first.value);
  const auto large = heap.allocate(60, 1, kInterleaved);
  EXPECT_FALSE(large->needs_clearing) << "clean pages are left, and clearing would touch them";
  // This is the rest of the region, except for that one freed page and the pages behind the block in its chunk.
  uint64_t rest = heap.geometry.pages() - 256;
  while (!heap.allocate(rest, 1, on_node(0))) rest -= 1;
  heap.free(large->first.value);
  const auto all = heap.allocate(256, 1, kInterleaved);
  ASSERT_TRUE(all) << "the chunk is free, in clean and used parts";
  EXPECT_TRUE(all->needs_clearing);
}

TEST(AddressSpaceTest, SmallRequestsShareExtents) {
  if (layout::kMaxRegionSize < (uint64_t{16} << 40)) GTEST_SKIP() << "this build has small regions";
  Checked heap(geometry(uint64_t{16} << 40));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(heap.allocate(1, 1, kInterleaved));
  EXPECT_EQ(heap.extents.count(), 1u) << "a new extent costs a message to every node";
}

TEST(AddressSpaceTest, OutOfSpaceIsRefusedAndHarmless) {
  Checked heap(geometry(4096 * 64));
  EXPECT_FALSE(heap.allocate(65, 1, kInterleaved));
  EXPECT_FALSE(heap.allocate(1, 128, kInterleaved));
  EXPECT_FALSE(heap.space.allocate(~uint64_t{0}, 1, kInterleaved));
  EXPECT_FALSE(heap.space.allocate(1, uint64_t{1} << 63, kInterleaved));
  const auto all = heap.allocate(64, 1, kBlocked);
  ASSERT_TRUE(all);
  EXPECT_FALSE(heap.allocate(1, 1, kInterleaved));
  EXPECT_FALSE(heap.space.allocate_for_owner(4, 1, kInterleaved, NodeId(1)));
  heap.free(all->first.value);
  EXPECT_FALSE(heap.allocate(1, 1, kInterleaved)) << "blocked pages keep their homes for ever";
  EXPECT_TRUE(heap.allocate(64, 1, kBlocked));
}

TEST(AddressSpaceTest, AFullExtentTableIsOutOfSpace) {
  ExtentTable extents(4);
  AddressSpace space(geometry(uint64_t{1} << 30), extents);
  int blocks = 0;
  while (space.allocate(static_cast<uint64_t>(1 + blocks), 1, kBlocked)) ++blocks;
  EXPECT_EQ(blocks, 3);
}

TEST(AddressSpaceTest, ManyBlocksOf64GiB) {
  if (layout::kMaxRegionSize < (uint64_t{16} << 40)) GTEST_SKIP() << "this build has small regions";
  Checked heap(geometry(uint64_t{16} << 40, 8));
  AddressSpace* const space = &heap.space;
  const uint64_t pages = (uint64_t{64} << 30) / 4096;
  std::vector<PageId> blocks;
  for (const Placement& placement : {kInterleaved, kBlocked, kFirstTouch, on_node(7)}) {
    for (int i = 0; i < 64; ++i) {
      const auto run = space->allocate(pages, 1, placement);
      ASSERT_TRUE(run) << "block " << blocks.size();
      EXPECT_FALSE(run->needs_clearing);
      blocks.push_back(run->first);
    }
  }
  EXPECT_EQ(blocks.size() * pages, heap.geometry.pages());
  EXPECT_FALSE(space->allocate(1, 1, kInterleaved));
  // Returns the home of the last page of a block.
  const auto home = [&](size_t block) {
    const PageId last(blocks[block].value + pages - 1);
    return home_in(*heap.extents.find(last), last, 8);
  };
  EXPECT_EQ(home(0), NodeId(7));
  EXPECT_EQ(home(64), NodeId(7));
  EXPECT_EQ(home(128), std::nullopt);
  EXPECT_EQ(home(255), NodeId(7));
  for (PageId block : blocks) EXPECT_TRUE(space->free(block));
  EXPECT_TRUE(space->allocate(pages * 64, 1, kInterleaved)) << "4 TiB in one piece";
}

TEST(AddressSpaceTest, LargeAlignmentLosesNothing) {
  if (layout::kMaxRegionSize < (uint64_t{1} << 40)) GTEST_SKIP() << "this build has small regions";
  Checked heap(geometry(uint64_t{1} << 40));
  ASSERT_TRUE(heap.allocate(1, 1, on_node(1)));
  const uint64_t half = heap.geometry.pages() / 2;
  const auto aligned = heap.space.allocate(half, half, on_node(0));
  ASSERT_TRUE(aligned);
  EXPECT_EQ(aligned->first, PageId(half));
  EXPECT_TRUE(heap.space.allocate(half - 5000, 1, kInterleaved)) << "what alignment skipped is of use";
}

TEST(AddressSpaceTest, OwnersGetExtentsOfTheirOwn) {
  Checked heap(geometry(4096 * 100));
  const auto pages = heap.space.allocate_for_owner(32, 16, kInterleaved, NodeId(2));
  ASSERT_TRUE(pages);
  EXPECT_EQ(pages->pages, 32u);
  const std::optional<Extent> extent = heap.extents.find(PageId(pages->first.value + 31));
  ASSERT_TRUE(extent);
  EXPECT_EQ(extent->owner, 2);
  EXPECT_FALSE(heap.space.free(pages->first)) << "these pages are not a block";
  EXPECT_EQ(heap.space.allocate_for_owner(90, 16, kInterleaved, NodeId(1))->pages, 16u) << "less, if that is all";
}

}  // namespace
}  // namespace multigrain
