#include "memory/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace multigrain {
namespace {

TEST(PagePool, HandsOutDistinctAlignedBuffersAndCountsThem) {
  Result<PagePool> pool = PagePool::create(16384, 100);
  ASSERT_TRUE(pool.has_value()) << pool.error().message;
  std::set<std::byte*> buffers;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(pool->in_use(), i);
    std::byte* const buffer = pool->acquire();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 4096, 0u);
    for (std::byte* other : buffers) EXPECT_TRUE(other + 16384 <= buffer || buffer + 16384 <= other);
    buffers.insert(buffer);
    std::memset(buffer, static_cast<int>(i), 16384);
  }
  EXPECT_EQ(buffers.size(), 100u);
  for (std::byte* buffer : buffers) pool->release(buffer);
  EXPECT_EQ(pool->in_use(), 0u);
}

TEST(PagePool, ReusesTheWarmestBuffer) {
  Result<PagePool> pool = PagePool::create(4096, uint64_t{1} << 20);
  ASSERT_TRUE(pool.has_value());
  std::byte* const first = pool->acquire();
  std::byte* const second = pool->acquire();
  pool->release(first);
  pool->release(second);
  EXPECT_EQ(pool->acquire(), second);
  EXPECT_EQ(pool->acquire(), first);
}

TEST(PagePool, TakesMemoryForAtMostTwiceWhatIsUsed) {
  constexpr size_t kSizes[] = {1024, 4096, 16384};
  for (const size_t size : kSizes) {
    Result<PagePool> pool = PagePool::create(size, 4000);
    ASSERT_TRUE(pool.has_value());
    std::vector<unsigned char> resident(4000 * size / 4096);
    for (uint64_t used = 1; used <= 4000; ++used) {
      *pool->acquire() = std::byte{1};
      if (used % 97 != 1) continue;
      ASSERT_EQ(mincore(pool->memory(), 4000 * size, resident.data()), 0);
      const auto pages = static_cast<uint64_t>(std::ranges::count(resident, 1));
      const uint64_t needed = (used * size + 4095) / 4096;
      EXPECT_LE(pages, std::min(2 * needed, needed + 512) + 1) << used << " buffers of " << size;
      // It is not one at a time.
      if (used == 98 && size == 4096) {
        EXPECT_GT(pages, used);
      }
    }
  }
}

TEST(PagePool, ThreadsNeverShareABuffer) {
  Result<PagePool> made = PagePool::create(4096, 64);
  ASSERT_TRUE(made.has_value());
  PagePool pool = std::move(*made);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int id = 1; id <= 4; ++id)
    threads.emplace_back([&pool, &wrong, id] {
      std::byte* held[8];
      for (int round = 0; round < 2000; ++round) {
        for (std::byte*& buffer : held) std::memset(buffer = pool.acquire(), id, 64);
        for (std::byte* buffer : held) {
          for (int i = 0; i < 64; ++i)
            if (buffer[i] != static_cast<std::byte>(id)) wrong.fetch_add(1);
          pool.release(buffer);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(PagePool, RefusesBadSizes) {
  EXPECT_FALSE(PagePool::create(1000, 10).has_value());
  EXPECT_FALSE(PagePool::create(4096, 0).has_value());
  EXPECT_FALSE(PagePool::create(65536, ~uint64_t{0} / 4096).has_value());
}

TEST(PagePoolDeathTest, SaysWhenItIsUsedUpAndRefusesForeignBuffers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Result<PagePool> pool = PagePool::create(4096, 1);
  ASSERT_TRUE(pool.has_value());
  std::byte* const only = pool->acquire();
  EXPECT_DEATH(static_cast<void>(pool->acquire()), "all twins are in use");
  EXPECT_DEATH(pool->release(only + 8), "invariant broken");
  pool->release(only);
  EXPECT_DEATH(pool->release(only), "in_use_");
}

}  // namespace
}  // namespace multigrain
