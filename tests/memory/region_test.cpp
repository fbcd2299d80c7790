#include "memory/region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/config.h"
#include "memory/sparse_table.h"
#include "memory/two_level_table.h"
#include "memory_test_support.h"

namespace multigrain {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(Region, ReservesTheLargestSizeAndCostsOnlyWhatIsTouched) {
  const uint64_t before = resident_set_bytes();
  Result<Region> region = Region::create(layout::kMaxRegionSize, 4096);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  EXPECT_EQ(region->size(), layout::kMaxRegionSize);
  EXPECT_EQ(region->page_count(), layout::kMaxRegionSize / 4096);
  constexpr uint64_t kTouched = 64;
  const uint64_t stride = region->page_count() / kTouched;
  for (uint64_t i = 0; i < kTouched; ++i) *region->alias(PageId((i + 1) * stride - 1)) = std::byte{1};
  EXPECT_EQ(region->resident_bytes(), kTouched * 4096);
  // Each touched page may have page tables of its own, which statm does not count.
  EXPECT_LT(resident_set_bytes() - before, 8u << 20);
}

TEST(Region, TellsItsAddresses) {
  Result<Region> region = Region::create(kGiB, 16384);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  std::byte* const base = region->base();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base), layout::kViewBase);
  EXPECT_TRUE(region->contains(base));
  EXPECT_TRUE(region->contains(base + kGiB - 1));
  EXPECT_FALSE(region->contains(base + kGiB));
  EXPECT_FALSE(region->contains(base - 1));
  EXPECT_FALSE(region->contains(nullptr));
  EXPECT_EQ(region->page_of(base + 16383), PageId(0));
  EXPECT_EQ(region->page_of(base + 16384), PageId(1));
  EXPECT_EQ(region->view(PageId(3)), base + 3 * 16384);
  EXPECT_EQ(region->alias_of(base + 5), region->alias(PageId(0)) + 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->alias(PageId(1))), layout::kAliasBase + 16384);
  EXPECT_TRUE(region->has_pages(PageId(65535), 1));
  EXPECT_FALSE(region->has_pages(PageId(65535), 2));
  EXPECT_FALSE(region->has_pages(PageId(1), ~uint64_t{0}));
}

TEST(Region, RefusesBadSizesWithASentence) {
  for (const size_t page_size : {size_t{0}, size_t{512}, size_t{5000}, size_t{131072}}) {
    Result<Region> region = Region::create(kGiB, page_size);
    ASSERT_FALSE(region.has_value());
    EXPECT_THAT(region.error().message, HasSubstr("power of two"));
  }
  for (const uint64_t size : {uint64_t{0}, uint64_t{4096 + 1}, layout::kMaxRegionSize + 4096}) {
    Result<Region> region = Region::create(size, 4096);
    ASSERT_FALSE(region.has_value());
    EXPECT_THAT(region.error().message, HasSubstr("multiple of the page size"));
  }
}

TEST(Region, NamesWhatIsInItsWay) {
  for (const uintptr_t base : {layout::kViewBase, layout::kAliasBase}) {
    void* const obstacle = mmap(reinterpret_cast<void*>(base + 8192), 4096, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_NE(obstacle, MAP_FAILED);
    Result<Region> region = Region::create(kGiB, 4096);
    ASSERT_FALSE(region.has_value());
    EXPECT_THAT(region.error().message, HasSubstr(base == layout::kViewBase ? "the view" : "the alias"));
    EXPECT_THAT(region.error().message, HasSubstr(fmt::format("anonymous memory at {:#x}", base + 8192)));
    EXPECT_THAT(region.error().message, HasSubstr("mgrun"));
    ASSERT_EQ(munmap(obstacle, 4096), 0);
    // The failure left nothing behind.
    EXPECT_TRUE(Region::create(kGiB, 4096).has_value());
  }
}

TEST(Region, TwoMappingsOfOneDescriptorShareFrames) {
  Result<Region> one = Region::create(kGiB, 4096);
  ASSERT_TRUE(one.has_value()) << one.error().message;
  Result<Region> two =
      Region::create(kGiB, 4096, dup(one->frames_fd()), {layout::kViewBase + 4 * kGiB, layout::kAliasBase + 4 * kGiB});
  ASSERT_TRUE(two.has_value()) << two.error().message;
  *one->alias(PageId(7)) = std::byte{42};
  EXPECT_EQ(*two->alias(PageId(7)), std::byte{42});
}

TEST(Region, RefusesFramesOfAnotherSizeAndLeavesThemOpen) {
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  Result<Region> region = Region::create(kGiB, 4096, fd);
  ASSERT_FALSE(region.has_value());
  EXPECT_THAT(region.error().message, HasSubstr("nodes disagree"));
  EXPECT_EQ(close(fd), 0);
}

TEST(Region, NamesTheFileSizeLimit) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit low = old;
  low.rlim_cur = kGiB / 2;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  Result<Region> region = Region::create(kGiB, 4096);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  ASSERT_FALSE(region.has_value());
  EXPECT_THAT(region.error().message, HasSubstr("ulimit -f"));
}

TEST(Region, DiscardedFramesGiveTheirMemoryBack) {
  Result<Region> region = Region::create(kGiB, 65536);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  std::memset(region->alias(PageId(10)), 1, 4 * 65536);
  EXPECT_EQ(region->resident_bytes(), 4u * 65536);
  region->discard_frames(PageId(11), 2);
  EXPECT_EQ(region->resident_bytes(), 2u * 65536);
  EXPECT_EQ(*region->alias(PageId(10)), std::byte{1});
  EXPECT_EQ(*region->alias(PageId(11)), std::byte{0});
  EXPECT_EQ(*region->alias(PageId(12)), std::byte{0});
  EXPECT_EQ(*region->alias(PageId(13)), std::byte{1});
}

TEST(Region, AnAliasThatIsUnmappedEarlyTakesNoMemoryAndIsMappedAgain) {
  constexpr uint64_t kBytes = uint64_t{32} << 20;
  Result<Region> region = Region::create(kGiB, 4096);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  std::memset(region->alias(PageId(10)), 1, kBytes);
  const uint64_t before = resident_set_bytes();
  region->unmap_alias_pages();
  EXPECT_LE(resident_set_bytes(), before - kBytes / 2);
  EXPECT_EQ(region->resident_bytes(), kBytes);
  EXPECT_EQ(*region->alias(PageId(10)), std::byte{1});
  *region->alias(PageId(11)) = std::byte{2};
  EXPECT_EQ(*region->alias(PageId(11)), std::byte{2});
}

TEST(Region, MakesFramesAndKeepsWhatIsThere) {
  Result<Region> region = Region::create(kGiB, 16384);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  *region->alias(PageId(3)) = std::byte{7};
  EXPECT_TRUE(region->make_frames(PageId(2), 40));
  EXPECT_EQ(region->resident_bytes(), 40u * 16384);
  EXPECT_EQ(*region->alias(PageId(3)), std::byte{7});
  EXPECT_EQ(*region->alias(PageId(41)), std::byte{0});

  std::array<std::byte, Config::kMinPageSize> pattern;
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i % 251);
  region->make_frames(PageId(40), 70, pattern.data());
  region->map_alias(PageId(40), 70);
  EXPECT_EQ(region->resident_bytes(), 108u * 16384);
  EXPECT_EQ(*(region->alias(PageId(40)) - 1), std::byte{0});
  for (size_t at = 0; at < 70 * 16384; at += pattern.size())
    ASSERT_EQ(std::memcmp(region->alias(PageId(40)) + at, pattern.data(), pattern.size()), 0) << at;
  EXPECT_EQ(*region->alias(PageId(110)), std::byte{0});
}

TEST(Region, MovesAndCleansUp) {
  {
    Result<Region> first = Region::create(kGiB, 4096);
    ASSERT_TRUE(first.has_value());
    Region second = std::move(*first);
    *second.alias(PageId(1)) = std::byte{9};
    EXPECT_EQ(*second.alias(PageId(1)), std::byte{9});
  }
  EXPECT_TRUE(Region::create(kGiB, 4096).has_value());
}

// Returns three pages of ordinary memory.
std::byte* three_pages() {
  void* const got = mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
}

TEST(Region, PartsOfItsViewCanBeElsewhere) {
  Result<Region> region = Region::create(kGiB, 4096);
  ASSERT_TRUE(region.has_value()) << region.error().message;
  std::byte* const one = three_pages();
  std::byte* const other = three_pages();
  ASSERT_TRUE(one != nullptr && other != nullptr);
  // Nothing may be lost unless that is asked for.
  const Status refused = region->move_view(PageId(10), 3, reinterpret_cast<uintptr_t>(one));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("is there"));
  ASSERT_TRUE(region->move_view(PageId(10), 3, reinterpret_cast<uintptr_t>(one), Region::Occupied::kReplaced));
  ASSERT_TRUE(region->move_view(PageId(13), 2, reinterpret_cast<uintptr_t>(other), Region::Occupied::kReplaced));
  EXPECT_EQ(region->view(PageId(9)), region->base() + 9 * 4096);
  EXPECT_EQ(region->view(PageId(10)), one);
  EXPECT_EQ(region->view(PageId(12)), one + 2 * 4096);
  EXPECT_EQ(region->view(PageId(13)), other);
  EXPECT_EQ(region->view(PageId(15)), region->base() + 15 * 4096);
  EXPECT_TRUE(region->contains(one + 3 * 4096 - 1));
  EXPECT_FALSE(region->contains(other + 2 * 4096));
  EXPECT_EQ(region->page_of(one + 4097), PageId(11));
  EXPECT_EQ(region->alias_of(other + 5), region->alias(PageId(13)) + 5);

  std::string stretches;
  region->for_each_stretch(PageId(8), 10, [&](const std::byte* begin, uint64_t bytes) {
    stretches += (begin == one ? "one " : begin == other ? "other " : "view ") + std::to_string(bytes / 4096) + ", ";
  });
  EXPECT_EQ(stretches, "view 2, one 3, other 2, view 3, ");
  stretches.clear();
  region->for_each_stretch(PageId(11), 1, [&](const std::byte* begin, uint64_t bytes) {
    stretches += std::to_string(begin - one) + " " + std::to_string(bytes);
  });
  EXPECT_EQ(stretches, "4096 4096");
  region->for_each_stretch(PageId(11), 0, [](const std::byte*, uint64_t) { FAIL() << "there is nothing"; });
}

// A core dump would allocate every page of a shared mapping, and a child would bypass the protocol.
TEST(Region, IsNeitherInheritedNorDumped) {
  Result<Region> region = Region::create(kGiB, 4096);
  ASSERT_TRUE(region.has_value());
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  int mappings = 0;
  bool ours = false;
  while (std::getline(smaps, line)) {
    if (line.starts_with(fmt::format("{:x}-", layout::kViewBase)) ||
        line.starts_with(fmt::format("{:x}-", layout::kAliasBase)))
      ours = true;
    if (!ours || !line.starts_with("VmFlags:")) continue;
    ours = false;
    ++mappings;
    EXPECT_THAT(line, HasSubstr(" dc ")) << "not copied on fork";
    EXPECT_THAT(line, HasSubstr(" dd ")) << "not dumped";
  }
  EXPECT_EQ(mappings, 2);
}

TEST(Region, AForkedChildHasNone) {
  Result<Region> region = Region::create(kGiB, 4096);
  ASSERT_TRUE(region.has_value());
  *region->alias(PageId(0)) = std::byte{1};
  ASSERT_TRUE(kernel_can_read(region->alias(PageId(0))));
  const pid_t child = fork();
  if (child == 0) _exit(kernel_can_read(region->alias(PageId(0))) || kernel_can_read(region->base()) ? 1 : 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

struct Record {
  uint64_t a;
  uint32_t b;
};

TEST(SparseTable, StartsAtZeroAndCostsOnlyWhatIsTouched) {
  const uint64_t count = layout::kMaxRegionSize / 4096;
  const uint64_t before = resident_set_bytes();
  Result<SparseTable<Record>> table = SparseTable<Record>::create(count, "page records");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(table->count(), count);
  for (uint64_t i = 0; i < 64; ++i) {
    Record& record = (*table)[PageId(i * (count / 64))];
    EXPECT_EQ(record.a, 0u);
    EXPECT_EQ(record.b, 0u);
    record.a = i;
  }
  EXPECT_EQ((*table)[count / 64 * 63].a, 63u);
  EXPECT_LT(resident_set_bytes() - before, 4u << 20);
}

TEST(SparseTable, ManyFitAndFreedRoomIsUsedAgain) {
  for (int round = 0; round < 200; ++round) {
    Result<SparseTable<uint64_t>> large = SparseTable<uint64_t>::create(layout::kTablesSize / 2 / 8, "large");
    Result<SparseTable<uint64_t>> small = SparseTable<uint64_t>::create(10, "small");
    ASSERT_TRUE(large.has_value()) << large.error().message;
    ASSERT_TRUE(small.has_value()) << small.error().message;
    (*large)[0u] = 1;
    EXPECT_EQ((*small)[0u], 0u);
  }
}

TEST(SparseTable, RefusesWhatCannotFit) {
  Result<SparseTable<uint64_t>> table = SparseTable<uint64_t>::create(layout::kTablesSize, "lock words");
  ASSERT_FALSE(table.has_value());
  EXPECT_THAT(table.error().message, HasSubstr("lock words"));
  EXPECT_FALSE(SparseTable<uint64_t>::create(~uint64_t{0}, "lock words").has_value());
}

TEST(SparseTableDeathTest, ChecksIndexes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Result<SparseTable<uint64_t>> table = SparseTable<uint64_t>::create(10, "words");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ((*table)[9u], 0u);
  EXPECT_DEATH((*table)[10u] = 1, "index < count_");
}

TEST(TwoLevelTable, StartsAtZeroAndFindsWhatIsUsed) {
  auto table = TwoLevelTable<Record, 4>::create(1'000, "page records");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(table->count(), 1'000u);
  EXPECT_EQ(table->find(999), nullptr);
  for (const uint64_t index : {999u, 0u, 501u, 500u}) {
    EXPECT_EQ((*table)[index].a, 0u);
    (*table)[index].a = index + 1;
  }
  for (const uint64_t index : {999u, 0u, 501u, 500u}) {
    EXPECT_EQ((*table)[index].a, index + 1);
    EXPECT_EQ(table->find(index), &(*table)[index]);
  }
  // The neighbours in a leaf are there, and are zero.
  ASSERT_NE(table->find(503), nullptr);
  EXPECT_EQ(table->find(503)->a, 0u);
  EXPECT_EQ(table->find(504), nullptr);
}

using NumbersOfLeaves = TwoLevelTable<std::atomic<uint32_t>, 64>;

TEST(TwoLevelTable, CostsWhatIsUsedAndNotAHardwarePageOfIt) {
  const uint64_t count = layout::kMaxRegionSize / 4096;
  auto table = TwoLevelTable<Record, 4, NumbersOfLeaves>::create(count, "page records");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(table->find(count - 1), nullptr);
  // These are a page of each 16 MiB, as far as 64 GiB. A table of one level would touch 4,096 hardware pages for them.
  const uint64_t before = resident_set_bytes();
  for (uint64_t i = 0; i < 4'096; ++i) (*table)[PageId(i * 4'096)].a = i;
  EXPECT_LT(resident_set_bytes() - before, 4u << 20);
  for (uint64_t i = 0; i < 4'096; ++i) EXPECT_EQ(table->find(i * 4'096)->a, i);
}

TEST(TwoLevelTable, CostsLittleMoreThanItsRecordsWhereAllAreUsed) {
  constexpr uint64_t kUsed = 1 << 20;
  auto table = TwoLevelTable<Record, 4, NumbersOfLeaves>::create(layout::kMaxRegionSize / 4096, "page records");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  const uint64_t before = resident_set_bytes();
  for (uint64_t i = 0; i < kUsed; ++i) (*table)[i].a = i;
  EXPECT_LT(resident_set_bytes() - before, kUsed * (sizeof(Record) + 2) + (1u << 20));
  for (uint64_t i = 0; i < kUsed; ++i) ASSERT_EQ((*table)[i].a, i);
}

TEST(TwoLevelTable, ThreadsThatUseALeafTogetherFindTheSame) {
  auto table = TwoLevelTable<std::atomic<uint64_t>, 4, NumbersOfLeaves>::create(40'000, "counts");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&table] {
      for (uint64_t i = 0; i < 40'000; ++i) (*table)[i].fetch_add(1, std::memory_order_relaxed);
    });
  for (std::thread& thread : threads) thread.join();
  for (uint64_t i = 0; i < 40'000; ++i) ASSERT_EQ((*table)[i].load(), 4u) << i;
}

TEST(TwoLevelTableDeathTest, ChecksIndexes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto table = TwoLevelTable<uint64_t, 4>::create(10, "words");
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ((*table)[9u], 0u);
  EXPECT_DEATH((*table)[10u] = 1, "index < count_");
  EXPECT_DEATH(static_cast<void>(table->find(10)), "index < count_");
}

}  // namespace
}  // namespace multigrain
