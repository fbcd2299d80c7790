// These compare the areas of a guest's address space with a model that has one entry a page.
#include "guest/areas.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <random>

namespace multigrain::guest {
namespace {

constexpr uint64_t kPages = 64;
constexpr uint64_t kBase = 0x10000;

constexpr Range pages(uint64_t first, uint64_t count) {
  return {kBase + first * kPageSize, kBase + (first + count) * kPageSize};
}

struct PageModel {
  bool is_mapped = false;
  int rights = 0;
  bool is_shared = false;
};

class AgainstAModel : public testing::TestWithParam<unsigned> {
 protected:
  void check() const {
    for (uint64_t page = 0; page < kPages; ++page) {
      const auto found = areas_.in(pages(page, 1));
      ASSERT_EQ(found.size(), model_[page].is_mapped ? 1u : 0u) << "page " << page;
      if (found.empty()) continue;
      EXPECT_EQ(found[0].range, pages(page, 1));
      EXPECT_EQ(found[0].rights, model_[page].rights);
      EXPECT_EQ(found[0].is_shared, model_[page].is_shared);
    }
    // The areas are in order, they do not overlap, and no two of them should be one.
    const auto all = areas_.all();
    for (size_t i = 1; i < all.size(); ++i) {
      ASSERT_LE(all[i - 1].range.end, all[i].range.begin);
      EXPECT_FALSE(all[i - 1].range.end == all[i].range.begin && all[i - 1].rights == all[i].rights &&
                   all[i - 1].is_shared == all[i].is_shared);
    }
  }

  // Returns the highest free run of that many pages.
  [[nodiscard]] std::optional<uint64_t> highest_free(uint64_t count) const {
    for (uint64_t first = kPages - count + 1; first-- > 0;) {
      bool is_free = true;
      for (uint64_t page = first; page < first + count; ++page) is_free = is_free && !model_[page].is_mapped;
      if (is_free) return kBase + first * kPageSize;
    }
    return std::nullopt;
  }

  Areas areas_{{pages(0, kPages)}, pages(0, kPages)};
  std::array<PageModel, kPages> model_{};
};

TEST_P(AgainstAModel, RandomChanges) {
  std::mt19937 random(GetParam());
  const auto below = [&random](uint64_t limit) {
    return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random);
  };
  for (int step = 0; step < 400; ++step) {
    const uint64_t first = below(kPages);
    const uint64_t count = 1 + below(std::min<uint64_t>(kPages - first, 12));
    const Range range = pages(first, count);
    const int rights = static_cast<int>(below(4));
    const bool is_shared = below(2) == 1;
    switch (below(4)) {
      case 0:
        areas_.map({.range = range, .rights = rights, .is_shared = is_shared});
        for (uint64_t page = first; page < first + count; ++page) model_[page] = {true, rights, is_shared};
        break;
      case 1:
        areas_.unmap(range);
        for (uint64_t page = first; page < first + count; ++page) model_[page] = {};
        break;
      case 2:
        areas_.set_rights(range, rights);
        for (uint64_t page = first; page < first + count; ++page)
          if (model_[page].is_mapped) model_[page].rights = rights;
        break;
      default: {
        bool is_free = true;
        for (uint64_t page = first; page < first + count; ++page) is_free = is_free && !model_[page].is_mapped;
        EXPECT_EQ(areas_.is_free(range), is_free);
        EXPECT_EQ(areas_.find_free(count * kPageSize), highest_free(count));
      }
    }
    check();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AgainstAModel, testing::Range(1u, 21u));

TEST(Areas, WhatIsAllowedAndWhatIsChosenDiffer) {
  Areas areas({pages(0, 64), pages(128, 64)}, pages(32, 32));
  EXPECT_TRUE(areas.is_allowed(pages(130, 62)));
  EXPECT_FALSE(areas.is_allowed(pages(60, 100)));
  EXPECT_TRUE(areas.is_allowed(pages(0, 64)));
  EXPECT_FALSE(areas.is_allowed(pages(0, 65)));
  EXPECT_FALSE(areas.is_allowed(Range{kBase, kBase}));
  EXPECT_EQ(areas.find_free(32 * kPageSize), pages(32, 1).begin);
  EXPECT_EQ(areas.find_free(33 * kPageSize), std::nullopt);
  EXPECT_EQ(areas.find_free(2 * kPageSize, pages(0, 4)), pages(2, 1).begin);
  // These areas reach into the range from below and from above.
  areas.map({.range = pages(0, 2), .rights = PROT_READ});
  areas.map({.range = pages(3, 4), .rights = PROT_READ});
  EXPECT_EQ(areas.find_free(kPageSize, pages(1, 3)), pages(2, 1).begin);
  EXPECT_EQ(areas.find_free(2 * kPageSize, pages(1, 3)), std::nullopt);
}

TEST(Areas, KeepWhatIsReserved) {
  Areas areas({pages(0, kPages)}, pages(0, kPages));
  areas.map({.range = pages(8, 2), .rights = PROT_READ});
  areas.reserve(pages(10, 2));
  areas.map({.range = pages(12, 2), .rights = PROT_READ});
  EXPECT_TRUE(areas.is_allowed(pages(8, 2)));
  EXPECT_FALSE(areas.is_allowed(pages(9, 2)));
  EXPECT_FALSE(areas.is_allowed(pages(11, 1)));
  EXPECT_FALSE(areas.is_free(pages(11, 1)));
  EXPECT_TRUE(areas.is_reserved(pages(11, 1).begin));
  EXPECT_FALSE(areas.is_reserved(pages(12, 1).begin));
  // It is no area, and nothing is found there.
  EXPECT_EQ(areas.all().size(), 2u);
  EXPECT_TRUE(areas.around(pages(10, 1).begin).empty());
  EXPECT_EQ(areas.find_free(4 * kPageSize, pages(6, 8)), std::nullopt);
  EXPECT_EQ(areas.without_reserved(pages(8, 6)), (std::vector<Range>{pages(8, 2), pages(12, 2)}));
  EXPECT_EQ(areas.without_reserved(pages(8, 3)), (std::vector<Range>{pages(8, 2)}));
  EXPECT_EQ(areas.without_reserved(pages(11, 3)), (std::vector<Range>{pages(12, 2)}));
  EXPECT_TRUE(areas.without_reserved(pages(10, 2)).empty());
  EXPECT_EQ(areas.without_reserved(pages(20, 2)), (std::vector<Range>{pages(20, 2)}));
}

// If each search began at the top, this would take half a minute and more.
TEST(Areas, AHundredThousandOfThem) {
  constexpr uint64_t kCount = 100'000;
  const Range all{kBase, kBase + (kCount + 2) * kPageSize};
  Areas areas({all}, all);
  for (uint64_t i = 0; i < kCount; ++i) {
    const auto found = areas.find_free(kPageSize);
    ASSERT_EQ(found, all.end - (i + 1) * kPageSize);
    areas.map({.range = {*found, *found + kPageSize}, .rights = i % 2 == 0 ? PROT_READ : PROT_READ | PROT_WRITE});
  }
  EXPECT_EQ(areas.all().size(), kCount);
  // A range that becomes free is found again, from the top.
  const Range hole{all.end - 5 * kPageSize, all.end - 4 * kPageSize};
  areas.unmap(hole);
  EXPECT_EQ(areas.find_free(2 * kPageSize), kBase);
  EXPECT_EQ(areas.find_free(kPageSize), hole.begin);
  areas.unmap({hole.end, hole.end + kPageSize});
  EXPECT_EQ(areas.find_free(2 * kPageSize), hole.begin);
}

}  // namespace
}  // namespace multigrain::guest
