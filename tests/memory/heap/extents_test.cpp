#include "memory/heap/extents.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace multigrain {
namespace {

Extent extent(uint64_t first, uint64_t pages, HomePolicy policy = HomePolicy::kInterleaved, uint16_t node = 0) {
  return Extent{PageId(first), pages, Placement{policy, NodeId(node)}, Extent::kNoOwner};
}

TEST(HomeTest, InterleavedCountsFromTheRegionsStart) {
  EXPECT_EQ(home_in(extent(5, 10), PageId(5), 4), NodeId(1));
  EXPECT_EQ(home_in(extent(5, 10), PageId(6), 4), NodeId(2));
  EXPECT_EQ(home_in(extent(0, 10), PageId(6), 4), NodeId(2)) << "whatever extent the page is in";
}

TEST(HomeTest, NodeAndFirstTouch) {
  EXPECT_EQ(home_in(extent(5, 10, HomePolicy::kNode, 3), PageId(9), 4), NodeId(3));
  EXPECT_EQ(home_in(extent(5, 10, HomePolicy::kFirstTouch), PageId(9), 4), std::nullopt);
}

// Every node gets a contiguous part, in order, and parts differ by one page at most.
TEST(HomeTest, BlockedIsContiguousAndEven) {
  for (unsigned nodes : {1u, 2u, 3u, 7u, 64u}) {
    for (uint64_t pages : {1u, 2u, 5u, 63u, 64u, 65u, 1000u}) {
      const Extent blocked = extent(17, pages, HomePolicy::kBlocked);
      std::vector<uint64_t> count(nodes);
      uint16_t last = 0;
      for (uint64_t i = 0; i < pages; ++i) {
        const NodeId home = *home_in(blocked, PageId(17 + i), nodes);
        ASSERT_LT(home.value, nodes);
        EXPECT_GE(home.value, last);
        last = home.value;
        ++count[home.value];
      }
      for (uint64_t c : count) {
        EXPECT_GE(c, pages / nodes);
        EXPECT_LE(c, (pages + nodes - 1) / nodes);
      }
    }
  }
}

TEST(HomeTest, BlockedDoesNotOverflowOnTheLargestRegion) {
  const uint64_t pages = uint64_t{1} << 32;  // 16 TiB of 4 KiB
  const Extent blocked = extent(0, pages, HomePolicy::kBlocked);
  EXPECT_EQ(home_in(blocked, PageId(pages - 1), 64), NodeId(63));
  EXPECT_EQ(home_in(blocked, PageId(pages / 2), 64), NodeId(32));
}

TEST(ExtentTableTest, FindsPagesInExtentsAndNotInGaps) {
  ExtentTable table(16);
  EXPECT_FALSE(table.find(PageId(0)));
  table.append(extent(2, 3));
  table.append(extent(5, 1, HomePolicy::kNode, 2));
  table.append(extent(10, 4));
  for (uint64_t page : {0u, 1u, 6u, 9u, 14u, 1000u}) EXPECT_FALSE(table.find(PageId(page))) << page;
  for (uint64_t page : {2u, 3u, 4u}) EXPECT_EQ(table.find(PageId(page))->first, PageId(2)) << page;
  EXPECT_EQ(table.find(PageId(5)), extent(5, 1, HomePolicy::kNode, 2));
  for (uint64_t page : {10u, 13u}) EXPECT_EQ(table.find(PageId(page))->first, PageId(10)) << page;
}

TEST(ExtentTableDeathTest, RefusesExtentsOutOfOrderAndTooMany) {
  EXPECT_DEATH(
      {
        ExtentTable table(16);
        table.append(extent(4, 4));
        table.append(extent(7, 1));
      },
      "invariant broken");
  EXPECT_DEATH(
      {
        ExtentTable table(1);
        table.append(extent(0, 1));
        table.append(extent(1, 1));
      },
      "invariant broken");
}

TEST(ExtentTableTest, ReadersSeeWholeExtentsWhileOthersAreAppended) {
  constexpr uint64_t kExtents = 20000;
  ExtentTable table(kExtents);
  std::atomic<bool> good{true};
  std::thread reader([&] {
    uint64_t page = 0;
    while (table.count() < kExtents) {
      const uint64_t count = table.count();
      if (count == 0) continue;
      page = (page * 31 + 7) % (count * 3);
      const std::optional<Extent> found = table.find(PageId(page));
      // Extent i is pages 3i and 3i+1, on node i mod 64.
      const bool right = page % 3 == 2 ? !found
                                       : found && *found == extent(page / 3 * 3, 2, HomePolicy::kNode,
                                                                   static_cast<uint16_t>(page / 3 % 64));
      if (!right) good = false;
    }
  });
  for (uint64_t i = 0; i < kExtents; ++i)
    table.append(extent(3 * i, 2, HomePolicy::kNode, static_cast<uint16_t>(i % 64)));
  reader.join();
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace multigrain
