#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "coherence/hlrc/line_trials.h"

namespace multigrain::hlrc {
namespace {

using Advice = LineTrials::Advice;

constexpr uint64_t kPages = 128;  // of a zone
constexpr uint32_t kChange = 50, kMove = 192;

// A zone whose pages change in turn. A page moves as soon as that is advised.
class Zone {
 public:
  // By lines a page costs so much for each change.
  explicit Zone(uint32_t cost_by_lines) : cost_by_lines_(cost_by_lines), trials_(*LineTrials::create(2 * kPages)) {}
  // Every page of the first `pages` changes once.
  void change(uint64_t pages = kPages) {
    for (uint64_t page = 0; page < pages; ++page) change_page(page);
  }
  void change_page(uint64_t page) {
    ++changes_[page];
    if (by_lines_[page]) {
      cost_[page] += cost_by_lines_;
      return;
    }
    const Advice advice = trials_.compared(
        PageId(page), std::min(changes_[page], 255u), kChange, kMove,
        [this](PageId tried) { return cost_[tried.value]; }, [this](PageId tried) { return by_lines_[tried.value]; });
    if (advice == Advice::kTry) ++tried_;
    by_lines_[page] = advice != Advice::kStay;
  }
  [[nodiscard]] uint64_t tried() const { return tried_; }
  [[nodiscard]] uint64_t by_lines() const {
    return static_cast<uint64_t>(std::count(by_lines_.begin(), by_lines_.end(), true));
  }

 private:
  uint32_t cost_by_lines_;
  LineTrials trials_;
  std::array<uint32_t, 2 * kPages> changes_{}, cost_{};
  std::array<bool, 2 * kPages> by_lines_{};
  uint64_t tried_ = 0;
};

TEST(LineTrials, OnePageIsTriedWhenPagesHaveCostAsMuchAsAMove) {
  Zone zone(0);
  for (int i = 0; i < 3; ++i) zone.change();
  EXPECT_EQ(zone.tried(), 0u);
  zone.change();
  EXPECT_EQ(zone.tried(), 1u);
  EXPECT_EQ(zone.by_lines(), 1u);
}

TEST(LineTrials, PagesMoveIfTheTrialPays) {
  Zone zone(kChange / 2);
  for (int i = 0; i < 20; ++i) zone.change();
  EXPECT_EQ(zone.tried(), 1u);
  EXPECT_EQ(zone.by_lines(), kPages);
}

TEST(LineTrials, APageThatHasChangedSeldomStays) {
  Zone zone(0);
  for (int i = 0; i < 20; ++i) zone.change(kPages / 2);
  EXPECT_EQ(zone.by_lines(), kPages / 2);
  for (int i = 0; i < 3; ++i) zone.change();
  EXPECT_EQ(zone.by_lines(), kPages / 2);
}

TEST(LineTrials, FewPagesAreWorseOffIfNoTrialPays) {
  for (const uint32_t cost : {kChange * 4 / 5, kChange, 10 * kChange}) {
    Zone zone(cost);
    for (int i = 0; i < 10'000; ++i) zone.change();
    EXPECT_EQ(zone.by_lines(), zone.tried());
    EXPECT_EQ(zone.tried(), 3u);
  }
}

TEST(LineTrials, EachTrialWaitsLongerThanTheOneBefore) {
  Zone zone(10 * kChange);
  unsigned last = 0, waited = 0, before = 0;
  for (unsigned i = 1; zone.tried() < 3; ++i) {
    const uint64_t tried = zone.tried();
    zone.change();
    if (zone.tried() == tried) continue;
    waited = i - last;
    EXPECT_GT(waited, before);
    before = last == 0 ? 0 : waited;
    last = i;
  }
}

TEST(LineTrials, AReferenceThatIsNotChangedAnyMoreIsReplaced) {
  Zone zone(0);
  for (int i = 0; i < 4; ++i) zone.change(2);  // page 0 is tried, page 1 is the reference
  ASSERT_EQ(zone.by_lines(), 1u);
  for (int i = 0; i < 100; ++i)
    for (uint64_t page = 2; page < kPages; ++page) zone.change_page(page);
  EXPECT_EQ(zone.by_lines(), kPages - 1);
}

TEST(LineTrials, ZonesAreJudgedByThemselves) {
  Zone zone(0);
  for (int i = 0; i < 20; ++i) zone.change();
  for (int i = 0; i < 4; ++i) zone.change(kPages + 1);
  EXPECT_EQ(zone.by_lines(), kPages + 1);
  EXPECT_EQ(zone.tried(), 2u);
}

}  // namespace
}  // namespace multigrain::hlrc
