// Happens-before, the search for accesses that race, and the suspicion of pages, as values.
#include <gtest/gtest.h>

#include <vector>

#include "races/accesses.h"
#include "races/clock.h"
#include "races/sections.h"
#include "races/suspects.h"

namespace multigrain::races {
namespace {

// Three owners that synchronise as nodes do.
class Owners {
 public:
  static constexpr uint16_t kOwners = 3;
  explicit Owners(SectionTable& sections) : sections_(sections) {
    for (uint16_t owner = 0; owner < kOwners; ++owner) begin(owner);
  }
  [[nodiscard]] SectionId now(uint16_t owner) const { return {owner, clocks_[owner][owner]}; }
  void release(uint16_t owner) { begin(owner); }
  // Acquires what the other owner has released, or acquired itself before.
  void acquire(uint16_t owner, uint16_t from) {
    const uint64_t own = clocks_[owner][owner];
    raise(clocks_[owner], clocks_[from]);
    clocks_[owner][owner] = own;
    begin(owner);
  }

 private:
  void begin(uint16_t owner) {
    ++clocks_[owner][owner];
    sections_.begin(now(owner), 0, ClockView(clocks_[owner]).first(kOwners));
  }
  SectionTable& sections_;
  std::array<Clock, kOwners> clocks_{};
};

class World : public testing::Test {
 protected:
  SectionTable sections{Owners::kOwners, 1 << 16};
  Owners owners{sections};
  AccessWindow window{256};
  std::vector<Access> raced;

  // Returns with how many earlier accesses this one races.
  size_t access(uint16_t owner, uint64_t address, uint32_t bytes, bool is_write) {
    raced.clear();
    window.add({.address = address, .pc = 1, .section = owners.now(owner), .bytes = bytes, .is_write = is_write},
               sections, [this](const Access& other) { raced.push_back(other); });
    return raced.size();
  }
  size_t write(uint16_t owner, uint64_t address, uint32_t bytes = 8) { return access(owner, address, bytes, true); }
  size_t read(uint16_t owner, uint64_t address, uint32_t bytes = 8) { return access(owner, address, bytes, false); }
};

TEST_F(World, SectionsThatNothingOrdersAreConcurrent) {
  EXPECT_TRUE(sections.are_concurrent(owners.now(0), owners.now(1)));
  EXPECT_FALSE(sections.are_concurrent(owners.now(0), owners.now(0)));
}

TEST_F(World, AReleaseAloneOrdersNothing) {
  const SectionId before = owners.now(0);
  owners.release(0);
  EXPECT_TRUE(sections.are_concurrent(before, owners.now(1)));
}

TEST_F(World, AnAcquireOrdersWhatCameBeforeTheRelease) {
  const SectionId before = owners.now(0);
  owners.release(0);
  const SectionId after = owners.now(0);
  const SectionId unordered = owners.now(1);
  owners.acquire(1, 0);
  EXPECT_FALSE(sections.are_concurrent(before, owners.now(1)));
  EXPECT_TRUE(sections.are_concurrent(before, unordered));
  EXPECT_TRUE(sections.are_concurrent(after, owners.now(1)));
}

TEST_F(World, AChainOfThreeOrders) {
  const SectionId first = owners.now(0);
  owners.release(0);
  owners.acquire(1, 0);
  owners.release(1);
  owners.acquire(2, 1);
  EXPECT_FALSE(sections.are_concurrent(first, owners.now(2)));
}

TEST_F(World, AForgottenSectionRacesWithNothing) {
  SectionTable few(2, 0);
  const Clock clock{1, 0};
  few.begin({0, 1}, 0, ClockView(clock).first(2));
  const Clock other{0, 1};
  few.begin({1, 1}, 0, ClockView(other).first(2));
  EXPECT_TRUE(few.are_concurrent({0, 1}, {1, 1}));
  for (uint64_t number = 2; number < 40; ++number) {
    const Clock later{number, 0};
    few.begin({0, number}, 0, ClockView(later).first(2));
  }
  EXPECT_FALSE(few.are_concurrent({0, 1}, {1, 1}));
}

TEST_F(World, WritesOfOneByteRace) {
  EXPECT_EQ(write(0, 100), 0u);
  EXPECT_EQ(write(1, 107), 1u);
  EXPECT_EQ(write(2, 108), 1u);
}

TEST_F(World, NeighboursDoNot) {
  EXPECT_EQ(write(0, 100, 4), 0u);
  EXPECT_EQ(write(1, 104, 4), 0u);
  EXPECT_EQ(write(2, 99, 1), 0u);
}

TEST_F(World, ReadsDoNotRaceWithEachOther) {
  EXPECT_EQ(read(0, 64), 0u);
  EXPECT_EQ(read(1, 64), 0u);
  EXPECT_EQ(write(2, 64), 2u);
  EXPECT_EQ(read(0, 64), 1u);
}

TEST_F(World, AccessesOfOneOwnerDoNotRace) {
  EXPECT_EQ(write(0, 64), 0u);
  owners.release(0);
  EXPECT_EQ(write(0, 64), 0u);
}

TEST_F(World, AnAccessOfSeveralLinesIsFoundInEach) {
  EXPECT_EQ(write(0, 60, 200), 0u);
  EXPECT_EQ(read(1, 255, 1), 1u);
  EXPECT_EQ(read(1, 60, 1), 1u);
  EXPECT_EQ(read(1, 260, 1), 0u);
}

TEST_F(World, OrderedAccessesDoNotRaceInWhicheverOrderTheyAreTold) {
  const SectionId first = owners.now(0);
  owners.release(0);
  owners.acquire(1, 0);
  EXPECT_EQ(write(1, 64), 0u);
  raced.clear();
  window.add({.address = 64, .pc = 1, .section = first, .bytes = 8, .is_write = true}, sections,
             [this](const Access& other) { raced.push_back(other); });
  EXPECT_TRUE(raced.empty());
}

TEST_F(World, WhatIsOverForAllIsNotLookedAtAgain) {
  for (unsigned i = 0; i < 200; ++i) {
    EXPECT_EQ(write(0, 64), 0u);
    owners.release(0);
    owners.acquire(1, 0);
    owners.acquire(2, 0);
    EXPECT_EQ(write(1, 64), 0u);
    owners.release(1);
    owners.acquire(0, 1);
    owners.acquire(2, 1);
  }
  EXPECT_EQ(window.forgotten(), 0u);
}

TEST_F(World, WhatMakesRoomTooEarlyIsCounted) {
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(write(0, i * 64), 0u);
  EXPECT_EQ(window.forgotten(), 300u - 256u);
  EXPECT_EQ(write(1, 0), 0u);
  EXPECT_EQ(write(1, 299 * 64), 1u);
}

TEST_F(World, APageOfOneOwnerIsNotSuspected) {
  Suspects suspects(16);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(0), true, sections), Level::kNot);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(0), true, sections), Level::kNot);
}

TEST_F(World, APageThatIsReadByAllIsNotSuspected) {
  Suspects suspects(16);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(0), false, sections), Level::kNot);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(1), false, sections), Level::kNot);
}

TEST_F(World, APageThatIsPassedOnIsShared) {
  Suspects suspects(16);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(0), true, sections), Level::kNot);
  owners.release(0);
  owners.acquire(1, 0);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(1), false, sections), Level::kShared);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(1), false, sections), Level::kNot);
}

TEST_F(World, APageThatConcurrentSectionsUseIsContended) {
  Suspects suspects(16);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(0), false, sections), Level::kNot);
  EXPECT_EQ(suspects.note(PageId(3), owners.now(1), true, sections), Level::kContended);
}

}  // namespace
}  // namespace multigrain::races
