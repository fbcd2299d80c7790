// The core of the detector of compiled calls: locations (location.h) against an oracle that keeps every access and what happened
// before it, and the clocks of what synchronises (order.h).
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "memory/region.h"
#include "races/compiled/compiled_detector.h"

namespace multigrain::races {
namespace {

constexpr unsigned kOwners = 4;
constexpr uint64_t kMemory = uint64_t{64} << 20;

RaceMemory make_memory(uint64_t limit = kMemory) {
  auto memory = RaceMemory::create(-1, limit);
  EXPECT_TRUE(memory);
  return *memory;
}

// --- The oracle: what happens before what, by the definition, with the set of all events that each event comes behind.

struct Event {
  unsigned owner = 0;
  std::set<size_t> before;
};

// A program of some owners on one location and one object each of several kinds. The oracle and the detector do the same.
class World {
 public:
  // Worlds share a memory, in which each has objects of its own.
  World(RaceMemory& memory, unsigned number) : memory_(memory), order_(memory, kOwners), first_object_(1 + 3 * number) {
    for (unsigned i = 0; i < kOwners; ++i) order_.begin(owner_[i], i);
  }

  // Returns whether an earlier access races with this one, by the oracle and by the detector.
  std::pair<bool, bool> access(unsigned owner, bool is_write, bool is_atomic) {
    const size_t event = add(owner);
    bool by_oracle = false;
    for (const auto& [earlier, earlier_writes, earlier_atomic] : accesses_)
      by_oracle |=
          (is_write || earlier_writes) && !(is_atomic && earlier_atomic) && !events_[event].before.contains(earlier);
    accesses_.emplace_back(event, is_write, is_atomic);
    bool by_detector = false;
    access_location(
        location_, memory_, order_.clock_of(owner_[owner]),
        {.epoch = Epoch(owner, owner_[owner].clock[owner], is_atomic), .place = event, .is_write = is_write},
        [&](const AccessRecord& found, bool was_write) {
          by_detector = true;
          check_conflict(found, was_write, event, is_write, is_atomic);
        });
    check_reads();
    return {by_oracle, by_detector};
  }
  void release(unsigned owner, uint64_t object) {
    const size_t event = add(owner);
    released_[object].push_back(event);
    order_.release(owner_[owner], first_object_ + object);
  }
  void acquire(unsigned owner, uint64_t object) {
    const size_t event = add(owner);
    for (const size_t earlier : released_[object]) {
      events_[event].before.insert(events_[earlier].before.begin(), events_[earlier].before.end());
      events_[event].before.insert(earlier);
    }
    order_.acquire(owner_[owner], first_object_ + object);
  }

 private:
  size_t add(unsigned owner) {
    Event event{owner, {}};
    if (last_[owner] != SIZE_MAX) {
      event.before = events_[last_[owner]].before;
      event.before.insert(last_[owner]);
    }
    events_.push_back(event);
    return last_[owner] = events_.size() - 1;
  }
  // What is told is a race by the oracle, too, and the place is that of the access.
  void check_conflict(const AccessRecord& found, bool was_write, size_t event, bool is_write, bool is_atomic) {
    const auto earlier = std::ranges::find(accesses_, found.place, [](const auto& one) { return std::get<0>(one); });
    ASSERT_NE(earlier, accesses_.end());
    EXPECT_EQ(std::get<1>(*earlier), was_write);
    EXPECT_EQ(std::get<2>(*earlier), found.epoch.is_atomic());
    EXPECT_EQ(events_[found.place].owner, found.epoch.owner());
    EXPECT_TRUE((is_write || was_write) && !(is_atomic && std::get<2>(*earlier)));
    EXPECT_FALSE(events_[event].before.contains(found.place));
  }
  // L2.
  void check_reads() {
    if ((location_.read & Location::kList) == 0) return;
    for (const AccessRecord& a : memory_.entries(location_.read & ~Location::kList))
      for (const AccessRecord& b : memory_.entries(location_.read & ~Location::kList))
        if (a.epoch && b.epoch && a.epoch != b.epoch && events_[b.place].before.contains(a.place)) {
          EXPECT_TRUE(b.epoch.is_atomic() && !a.epoch.is_atomic());
        }
  }

  RaceMemory& memory_;
  Order order_;
  const uint64_t first_object_;
  std::array<Owner, kOwners> owner_;
  Location location_;
  std::vector<Event> events_;
  std::array<size_t, kOwners> last_{SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  std::vector<std::tuple<size_t, bool, bool>> accesses_;
  std::array<std::vector<size_t>, 3> released_;
};

// Runs random programs. Calls on_access(by_oracle, by_detector, where) at each access; if that returns false, the program ends.
template <typename OnAccess>
void run_programs(bool has_atomics, unsigned programs, unsigned steps, OnAccess&& on_access) {
  RaceMemory memory = make_memory();
  for (unsigned seed = 0; seed < programs; ++seed) {
    std::mt19937 random(seed);
    World world(memory, seed);
    for (unsigned step = 0; step < steps; ++step) {
      const unsigned owner = random() % kOwners;
      const unsigned what = random() % 16;
      if (what < 4) {
        world.release(owner, random() % 3);
      } else if (what < 9) {
        world.acquire(owner, random() % 3);
      } else {
        const auto [by_oracle, by_detector] = world.access(owner, random() % 4 == 0, has_atomics && random() % 2 == 0);
        if (!on_access(by_oracle, by_detector, fmt::format("seed {}, step {}", seed, step))) break;
      }
    }
  }
}

TEST(CompiledRaces, TellsTheFirstRaceOfALocationAndNothingElse) {
  constexpr unsigned kPrograms = 4000;
  unsigned races = 0;
  run_programs(false, kPrograms, 60, [&](bool by_oracle, bool by_detector, const std::string& where) {
    EXPECT_EQ(by_oracle, by_detector) << where;
    races += by_oracle ? 1 : 0;
    return !by_oracle && !testing::Test::HasFailure();
  });
  // Both kinds of programs are there.
  EXPECT_GT(races, kPrograms / 10);
  EXPECT_LT(races, kPrograms);
}

// With atomics an ordered write may hide an older one (location.h), so what is told is a race, and most are told.
TEST(CompiledRaces, TellsNothingButRacesWithAtomics) {
  unsigned told = 0, missed = 0;
  run_programs(true, 4000, 60, [&](bool by_oracle, bool by_detector, const std::string& where) {
    EXPECT_TRUE(by_oracle || !by_detector) << where;
    told += by_detector ? 1 : 0;
    missed += by_oracle && !by_detector ? 1 : 0;
    return !by_oracle && !testing::Test::HasFailure();
  });
  EXPECT_GT(told, 400u);
  EXPECT_LT(missed, told / 20);
}

// --- Clocks

class Clocks : public testing::Test {
 protected:
  Clocks() {
    for (unsigned i = 0; i < kOwners; ++i) order_.begin(owner_[i], i);
  }
  bool knows(unsigned owner, Epoch epoch) { return happens_before(epoch, order_.clock_of(owner_[owner])); }
  Epoch now(unsigned owner) { return Epoch::of_bits(owner_[owner].epoch); }

  RaceMemory memory_ = make_memory();
  Order order_{memory_, kOwners};
  std::array<Owner, kOwners> owner_;
};

TEST_F(Clocks, AReleaseHandsOnWhatWasBeforeItAlone) {
  const Epoch before = now(0);
  order_.release(owner_[0], 5);
  const Epoch after = now(0);
  order_.acquire(owner_[1], 5);
  EXPECT_TRUE(knows(1, before));
  EXPECT_FALSE(knows(1, after));
  EXPECT_FALSE(knows(2, before));
  order_.acquire(owner_[2], 6);
  EXPECT_FALSE(knows(2, before));
}

TEST_F(Clocks, OfABarrierNobodyKnowsTheNextEpisode) {
  constexpr uint64_t kBarrier = uint64_t{2} << object::kShift | 7;
  std::array<Order::Arrival, kOwners> key{};
  for (unsigned episode = 0; episode < 5; ++episode) {
    std::array<Epoch, kOwners> before{};
    for (unsigned i = 0; i < kOwners; ++i) {
      before[i] = now(i);
      key[i] = order_.arrive(owner_[i], kBarrier, kOwners);
    }
    // One owner leaves, and arrives again before the others have left.
    order_.leave(owner_[0], key[0]);
    for (unsigned i = 0; i < kOwners; ++i) EXPECT_TRUE(knows(0, before[i]));
    const Epoch between = now(0);
    const Order::Arrival next = order_.arrive(owner_[0], kBarrier, kOwners);
    for (unsigned i = 1; i < kOwners; ++i) {
      order_.leave(owner_[i], key[i]);
      for (unsigned k = 0; k < kOwners; ++k) EXPECT_TRUE(knows(i, before[k]));
      EXPECT_FALSE(knows(i, between));
    }
    for (unsigned i = 1; i < kOwners; ++i) static_cast<void>(order_.arrive(owner_[i], kBarrier, kOwners));
    for (unsigned i = 0; i < kOwners; ++i) order_.leave(owner_[i], next);
    EXPECT_TRUE(knows(1, between));
  }
}

// A barrier of two, to which a third owner comes: here it is seen before the second one, in the program it is in the next episode.
TEST_F(Clocks, AtABarrierWithStrangersEverybodyKnowsAll) {
  constexpr uint64_t kBarrier = uint64_t{2} << object::kShift | 9;
  const Epoch second = now(1);
  const Order::Arrival first = order_.arrive(owner_[0], kBarrier, 2);
  const Order::Arrival stranger = order_.arrive(owner_[2], kBarrier, 2);
  static_cast<void>(order_.arrive(owner_[1], kBarrier, 2));
  order_.leave(owner_[0], first);
  EXPECT_TRUE(knows(0, second));
  order_.leave(owner_[2], stranger);
  EXPECT_TRUE(knows(2, second));
}

TEST_F(Clocks, AtomicsOrderAsTheirOrderSays) {
  struct Step {
    Order::Atomic write, read;
    bool orders;
  };
  constexpr Order::Atomic kReleaseStore{.releases = true, .writes = true}, kRelaxedStore{.writes = true};
  constexpr Order::Atomic kAcquireLoad{.acquires = true, .reads = true}, kRelaxedLoad{.reads = true};
  uint64_t address = 8;
  const auto make = [&](unsigned owner, const Order::Atomic& operation) {
    SyncObject& object = order_.begin_atomic(address);
    order_.acquire_by_atomic(owner_[owner], object, operation);
    order_.end_atomic(owner_[owner], object, operation);
  };
  for (const Step& step : {Step{kReleaseStore, kAcquireLoad, true}, Step{kRelaxedStore, kAcquireLoad, false},
                           Step{kReleaseStore, kRelaxedLoad, false}, Step{kRelaxedStore, kRelaxedLoad, false}}) {
    address += 8;
    const Epoch before = now(0);
    make(0, step.write);
    make(1, step.read);
    EXPECT_EQ(knows(1, before), step.orders);
    // So that the next step begins with owners that know as much as each other.
    order_.release(owner_[0], 1);
    order_.acquire(owner_[1], 1);
  }
  // A release sequence goes on through updates, and ends at a store.
  address += 8;
  const Epoch first = now(2);
  make(2, kReleaseStore);
  make(3, {.reads = true, .writes = true});
  make(1, kAcquireLoad);
  EXPECT_TRUE(knows(1, first));
  EXPECT_FALSE(knows(3, first));
  make(3, kRelaxedStore);
  make(0, kAcquireLoad);
  EXPECT_FALSE(knows(0, first));
  // Fences.
  address += 8;
  const Epoch second = now(2);
  order_.release_fence(owner_[2]);
  const Epoch third = now(2);
  make(2, kRelaxedStore);
  make(3, kRelaxedLoad);
  EXPECT_FALSE(knows(3, second));
  order_.acquire_fence(owner_[3]);
  EXPECT_TRUE(knows(3, second));
  EXPECT_FALSE(knows(3, third));
}

// --- The detector on memory: parts of 8 bytes, against the same for each byte alone

std::vector<Race> g_told;

class OnMemory : public testing::Test {
 protected:
  OnMemory() {
    g_told.clear();
    auto region = Region::create(uint64_t{1} << 30, 4096);
    EXPECT_TRUE(region);
    region_.emplace(std::move(*region));
    detector_ = std::make_unique<CompiledDetector>(
        make_memory(), *region_, CompiledDetector::Machine{.processors = kOwners},
        std::vector<CompiledDetector::Part>{}, [](const Race& race, const Contexts&) { g_told.push_back(race); });
    for (unsigned i = 0; i < kOwners; ++i) {
      detector_->begin_processor(i);
      owner_[i] = t_owner;
    }
  }
  ~OnMemory() override { t_owner = nullptr; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(region_->base()) + 4088; }
  void access(unsigned owner, uint64_t offset, uint64_t bytes, bool is_write, uintptr_t code) {
    detector_->tell_plain(*owner_[owner], address() + offset, bytes, is_write, code);
  }
  [[nodiscard]] uint64_t found() const { return detector_->memory().head().found.load(); }

  std::optional<Region> region_;
  std::unique_ptr<CompiledDetector> detector_;
  std::array<Owner*, kOwners> owner_{};
};

TEST_F(OnMemory, AgreesWithBytesOneByOne) {
  unsigned races = 0;
  RaceMemory lists = make_memory();
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    // Whoever gets memory anew comes behind those that had it (recent.h, K2).
    for (Owner* const owner : owner_) {
      t_owner = owner;
      detector_->release(8);
    }
    detector_->allocate(region_->base(), 8192, 0);
    std::array<Location, 200> byte{};  // the first of them are the last of a line
    for (unsigned step = 0; step < 40; ++step) {
      const unsigned owner = random() % kOwners;
      if (const unsigned what = random() % 8; what < 2) {
        t_owner = owner_[owner];
        detector_->release(7);
        continue;
      } else if (what < 5) {
        t_owner = owner_[owner];
        detector_->acquire(7);
        continue;
      }
      // Parts of cells, cells, and whole lines with what is around them.
      uint64_t bytes = uint64_t{1} << random() % 5;
      uint64_t offset = random() % 3 == 0 ? random() % (40 - bytes) : random() % (16 / bytes + 1) * bytes;
      if (random() % 2 == 0) {
        bytes = random() % 4 == 0 ? 1 + random() % 150 : 64 + random() % 2 * 64;
        offset = random() % 4 == 0 ? random() % (byte.size() - bytes) : 8;
      }
      const bool is_write = random() % 3 == 0;
      // Or pieces, from either end.
      uint64_t count = 1;
      int64_t stride = 0;
      if (random() % 3 == 0) {
        bytes = uint64_t{1} << random() % 5;
        stride = static_cast<int64_t>(random() % 40);
        count = 1 + random() % 4;
        if (random() % 2 == 0) {
          offset = random() % 8 + (count - 1) * static_cast<uint64_t>(stride);
          stride = -stride;
        } else {
          offset = random() % 64;
        }
      }
      bool by_bytes = false;
      for (uint64_t piece = 0; piece < count; ++piece)
        for (uint64_t i = 0; i < bytes; ++i)
          access_location(byte[offset + piece * static_cast<uint64_t>(stride) + i], lists,
                          detector_->order().clock_of(*owner_[owner]),
                          {.epoch = Epoch::of_bits(owner_[owner]->epoch), .place = 1, .is_write = is_write},
                          [&](const AccessRecord&, bool) { by_bytes = true; });
      const uint64_t before = found();
      // What is noted may have to make room for other lines at any time.
      if (random() % 4 == 0) owner_[owner]->recent->clear();
      if (count == 1)
        access(owner, offset, bytes, is_write, 0x1000 + step);
      else
        detector_->tell_strided(*owner_[owner], address() + offset, bytes, stride, count, is_write, 0x1000 + step);
      ASSERT_EQ(found() != before, by_bytes) << "seed " << seed << ", step " << step;
      if (by_bytes) {
        ++races;
        break;
      }
    }
  }
  EXPECT_GT(races, 300u);
  EXPECT_LT(races, 1500u);
}

TEST_F(OnMemory, TellsEachPairOfPlacesOnce) {
  for (unsigned i = 0; i < 5; ++i) {
    access(0, 64 * i, 8, true, 0x100);
    access(1, 64 * i, 8, false, 0x200);
    access(2, 64 * i, 8, true, 0x300);
  }
  ASSERT_EQ(g_told.size(), 3u);
  EXPECT_EQ(found(), 15u);
  EXPECT_EQ(Contexts::code_of(g_told[0].now.place), 0x200u);
  EXPECT_EQ(Contexts::code_of(g_told[0].earlier.place), 0x100u);
  EXPECT_TRUE(g_told[0].earlier.is_write);
  EXPECT_FALSE(g_told[0].now.is_write);
  EXPECT_EQ(g_told[0].address, address());
}

TEST_F(OnMemory, MemoryThatIsAllocatedHasNoHistory) {
  access(0, 0, 8, true, 0x100);
  access(1, 16, 2, false, 0x100);
  detector_->allocate(region_->base(), 8192, 0);
  access(2, 0, 8, true, 0x200);
  access(2, 16, 4, true, 0x200);
  EXPECT_EQ(found(), 0u);
}

// recent.h, K2: what was noted of the memory before is not held against its next use.
TEST_F(OnMemory, WhatWasNotedEndsWithTheBlock) {
  access(0, 0, 8, true, 0x100);
  access(0, 64, 8, false, 0x100);
  t_owner = owner_[0];
  detector_->free(region_->base(), 8192, 0x200);
  detector_->allocate(region_->base(), 8192, 0);
  access(0, 0, 8, true, 0x300);
  access(0, 64, 8, false, 0x300);
  EXPECT_EQ(found(), 0u);
  access(1, 0, 8, false, 0x400);
  access(1, 64, 8, true, 0x400);
  ASSERT_EQ(g_told.size(), 2u);
  EXPECT_EQ(Contexts::code_of(g_told[0].earlier.place), 0x300u);
}

TEST_F(OnMemory, AnAtomicOperationTakesNotesAway) {
  access(0, 0, 8, false, 0x100);
  detector_->access(*owner_[0], address(), 8, true, true, 0x200);
  access(0, 0, 8, false, 0x300);
  detector_->access(*owner_[1], address(), 8, true, true, 0x400);
  ASSERT_EQ(g_told.size(), 1u);
  EXPECT_EQ(Contexts::code_of(g_told[0].earlier.place), 0x300u);
}

TEST_F(OnMemory, APartThatIsKnownDoesNotStandForTheRest) {
  for (const uint64_t bytes : {1, 2, 4, 8, 16}) {
    const uint64_t at = 256 * bytes + 56;  // 16 bytes go on in the next line
    access(0, at, bytes, false, 0x100);
    access(0, at, 32, true, 0x100);
    const uint64_t before = found();
    access(1, at + 31, 1, false, 0x200);
    EXPECT_EQ(found(), before + 1) << bytes;
  }
}

TEST_F(OnMemory, PiecesAreThoseAtTheirDistance) {
  detector_->tell_strided(*owner_[0], address() + 240, 8, -80, 4, true, 0x100);  // at 240, 160, 80 and 0
  for (uint64_t at = 0; at < 300; at += 8) {
    const uint64_t before = found();
    access(1, at, 8, false, 0x200);
    EXPECT_EQ(found() != before, at % 80 == 0 && at <= 240) << at;
  }
}

TEST_F(OnMemory, FreeingIsAWriteOfWhatWasAccessed) {
  access(0, 16, 4, false, 0x100);
  t_owner = owner_[1];
  detector_->free(region_->base(), 8192, 0x200);
  ASSERT_EQ(g_told.size(), 1u);
  EXPECT_EQ(g_told[0].address, address() + 16);
}

TEST_F(OnMemory, CallsAreKnownToTheirDepth) {
  const Contexts& contexts = detector_->contexts();
  Calls& calls = owner_[0]->calls;
  const auto place_at = [&](uint64_t code) { return Contexts::place(code, contexts.context(calls)); };
  // Of this program, of a library, and of no object that is loaded.
  const auto own = reinterpret_cast<uint64_t>(&make_memory);
  const auto library = reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, "qsort"));
  ASSERT_NE(library, 0u);
  contexts.enter(calls, own, 1000);
  contexts.enter(calls, library, 900);
  contexts.enter(calls, 0x401030, 800);
  const uint64_t place = place_at(own + 1);
  const auto callers = [&](uint64_t of) {
    std::vector<uint64_t> sites;
    contexts.for_each_call(of, [&](uint64_t site) { return sites.push_back(site), true; });
    return sites;
  };
  EXPECT_EQ(Contexts::code_of(place), own + 1);
  EXPECT_EQ(callers(place), (std::vector<uint64_t>{0x401030, library, own}));
  Contexts::leave(calls);
  EXPECT_EQ(callers(place_at(1)), (std::vector<uint64_t>{library, own}));
  // longjmp() to the outermost function, which then calls another one.
  contexts.enter(calls, 0x401030, 800);
  contexts.enter(calls, 0x401040, 950);
  EXPECT_EQ(callers(place_at(1)), (std::vector<uint64_t>{0x401040, own}));
}

TEST(CompiledRacesDeathTest, EndsWithASentenceWhenItsMemoryIsUsedUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        RaceMemory memory = make_memory(uint64_t{16} << 20);
        for (uint64_t page = 0; page < 2000; ++page) static_cast<void>(memory.line_of(page << RaceMemory::kPageShift));
      },
      testing::ExitedWithCode(1), "has used up the memory that it may take .*--races-memory");
}

}  // namespace
}  // namespace multigrain::races
