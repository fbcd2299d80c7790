// These test DSZOOM with real threads and faults (line_machine.h).
#include <gtest/gtest.h>

#include "coherence/dszoom/driver.h"
#include "line_machine.h"

namespace multigrain::dszoom {
namespace {

using namespace line_tests;
using driver_nodes::OneSided;

template <Runs runs>
std::unique_ptr<LineMemory> make_driver(const NodeServices& services, const LineServices& lines) {
  auto driver =
      Driver::create(services, lines, 0, runs, runs == Runs::kNever ? RightsAhead::kNever : RightsAhead::kLearned);
  EXPECT_TRUE(driver) << driver.error().message;
  return std::move(*driver);
}

class Dszoom : private InterleavedHomes, public Machine {
 public:
  // So many pages at a time have the same home.
  explicit Dszoom(unsigned nodes, unsigned line_shift = 6, Runs runs = Runs::kNever, unsigned pages_of_home = 1)
      : InterleavedHomes(nodes, pages_of_home),
        Machine(
            nodes, line_shift, *this, [](Fabric& memory) { return std::make_unique<OneSided>(memory); },
            runs == Runs::kNever ? make_driver<Runs::kNever> : make_driver<Runs::kLearned>, false) {}
};

uint64_t counted(const ProcessorProfile& profile, Counter counter) {
  ProfileSnapshot snapshot;
  profile.snapshot(snapshot);
  return snapshot.counters[static_cast<size_t>(counter)];
}

// Stores in the first words of the first lines their numbers.
void number_lines(CheckedProcessor& p, uint64_t lines) {
  for (uint64_t i = 0; i < lines; ++i) p.store(i * 64, i);
}

uint64_t remote(CheckedProcessor& p) {
  return static_cast<OneSided&>(p.fabric()).remote();
}

TEST(DszoomDriver, ALineGoesWhereItIsWanted) {
  Dszoom machine(3);
  a_line_goes_where_it_is_wanted(machine,
                                 [](CheckedProcessor& p, uint64_t offset, uint64_t value) { p.store(offset, value); });
}

// The home accesses a line that no other node has used without an operation. A miss that the home serves takes three
// operations, of one round trip, and the release.
TEST(DszoomDriver, AMissTakesAFewOperationsOfOneNode) {
  Dszoom machine(2);
  CheckedProcessor home(machine, 0);
  number_lines(home, 64);
  EXPECT_EQ(remote(home), 0u);
  std::thread([&] {
    CheckedProcessor p(machine, 1);
    for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(p.load(i * 64), i);
    EXPECT_EQ(remote(p), 64u * 4);
    const uint64_t before = remote(p);
    for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(p.load(i * 64), i);
    EXPECT_EQ(remote(p), before);
  }).join();
}

// A processor that goes through memory gets more and more lines at a time, to the end of the page: 1, 2, 4, 8, 16 and 32,
// and the last.
TEST(DszoomDriver, LinesThatAreNextToEachOtherMoveInRuns) {
  Dszoom machine(2, 6, Runs::kLearned);
  CheckedProcessor home(machine, 0);
  number_lines(home, 64);
  std::thread([&] {
    ProcessorProfile profile;
    set_this_profile(profile);
    CheckedProcessor p(machine, 1);
    for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(p.load(i * 64), i);
    EXPECT_EQ(counted(profile, Counter::kTwoHopMisses), 7u);
    EXPECT_EQ(counted(profile, Counter::kLinesMoved), 64u);
    for (uint64_t i = 0; i < 64; ++i) p.store(i * 64, i + 100);
    EXPECT_EQ(counted(profile, Counter::kLineUpgrades), 7u);
    static ProcessorProfile nobody;
    set_this_profile(nobody);
  }).join();
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(home.load(i * 64), i + 100);
}

// A run goes on in the next page if that has the same home. Where the page before has another home, it begins anew.
TEST(DszoomDriver, RunsGoOnInTheNextPageOfTheSameHome) {
  Dszoom machine(2, 6, Runs::kLearned, 2);
  CheckedProcessor home(machine, 0);
  const auto number_pages = [](CheckedProcessor& p, uint64_t first, uint64_t past) {
    for (uint64_t i = first * 64; i < past * 64; ++i) p.store(i * 64, i);
  };
  number_pages(home, 0, 2);
  number_pages(home, 4, 5);
  std::thread([&] {
    ProcessorProfile profile;
    set_this_profile(profile);
    CheckedProcessor p(machine, 1);
    number_pages(p, 2, 4);
    const auto misses_of_page = [&](uint64_t page) {
      const uint64_t before = counted(profile, Counter::kTwoHopMisses);
      for (uint64_t i = page * 64; i < (page + 1) * 64; ++i) EXPECT_EQ(p.load(i * 64), i);
      return counted(profile, Counter::kTwoHopMisses) - before;
    };
    EXPECT_EQ(misses_of_page(0), 7u);
    EXPECT_EQ(misses_of_page(1), 2u);
    EXPECT_EQ(misses_of_page(4), 7u);
    EXPECT_EQ(counted(profile, Counter::kLinesMoved), 3u * 64);
    static ProcessorProfile nobody;
    set_this_profile(nobody);
  }).join();
}

// Two nodes count in lines that are far from each other. When they have shown that they store to what they load, a visit takes
// one miss.
TEST(DszoomDriver, ALoadThatAStoreFollowsBringsTheRightToStore) {
  Dszoom machine(2, 6, Runs::kLearned);
  constexpr uint64_t kLinesOfMachine = 64, kVisits = 32;
  ProcessorProfile profile;
  CheckedProcessor home(machine, 0);
  for (uint64_t visit = 0; visit < kVisits; ++visit) {
    const auto count_up = [](CheckedProcessor& p) {
      for (uint64_t i = 0; i < kLinesOfMachine; i += 16) p.store(i * 64, p.load(i * 64) + 1);
    };
    std::thread([&] {
      set_this_profile(profile);
      CheckedProcessor p(machine, 1);
      count_up(p);
      static ProcessorProfile nobody;
      set_this_profile(nobody);
    }).join();
    count_up(home);
  }
  for (uint64_t i = 0; i < kLinesOfMachine; i += 16) EXPECT_EQ(home.load(i * 64), 2 * kVisits);
  const uint64_t misses = kVisits * kLinesOfMachine / 16;
  EXPECT_EQ(counted(profile, Counter::kTwoHopMisses), misses);
  EXPECT_EQ(counted(profile, Counter::kLineUpgrades) + counted(profile, Counter::kRightsAhead), misses);
  EXPECT_GT(counted(profile, Counter::kRightsAhead), misses * 3 / 4);
}

// A processor that goes the other way gets them one by one.
TEST(DszoomDriver, LinesThatAreTouchedDownwardsMoveAlone) {
  Dszoom machine(2, 6, Runs::kLearned);
  CheckedProcessor home(machine, 0);
  number_lines(home, 64);
  std::thread([&] {
    CheckedProcessor p(machine, 1);
    for (uint64_t i = 64; i-- > 0;) {
      const uint64_t before = remote(p);
      EXPECT_EQ(p.load(i * 64), i);
      EXPECT_EQ(remote(p) - before, 4u) << i;
    }
  }).join();
}

// A run ends at a line that another node has, and leaves it where it is.
TEST(DszoomDriver, ARunEndsAtALineThatAnotherNodeHas) {
  Dszoom machine(3, 6, Runs::kLearned);
  CheckedProcessor home(machine, 0);
  number_lines(home, 16);
  std::thread([&] {
    CheckedProcessor third(machine, 2);
    third.store(6 * 64, 66);
  }).join();
  std::thread([&] {
    CheckedProcessor p(machine, 1);
    for (uint64_t i = 0; i < 6; ++i) p.store(i * 64, 10 + i);
    EXPECT_EQ(machine.word(1, 5 * 64), kExclusive);
    EXPECT_EQ(machine.word(1, 6 * 64), kInvalid);
    EXPECT_EQ(machine.word(2, 6 * 64), kExclusive);
    EXPECT_EQ(p.load(6 * 64), 66u);
  }).join();
}

// A compare-and-swap loop that announces its store before it loads the line costs one miss, not two.
TEST(DszoomDriver, ALineThatWillBeStoredToComesWithTheRight) {
  Dszoom machine(2);
  CheckedProcessor home(machine, 0);
  for (uint64_t i = 0; i < 2; ++i) home.store(i * 64, 5);
  std::thread([&] {
    CheckedProcessor p(machine, 1);
    EXPECT_EQ(p.load(0), 5u);
    EXPECT_EQ(p.add(0, 1), 5u);
    const uint64_t two_misses = remote(p);
    p.driver().prefetch_exclusive(p.address(64));
    EXPECT_EQ(machine.word(1, 64), kExclusive);
    const uint64_t one_miss = remote(p) - two_misses;
    EXPECT_EQ(p.load(64), 5u);
    EXPECT_EQ(p.add(64, 1), 5u);
    EXPECT_EQ(remote(p), two_misses + one_miss);
    EXPECT_LT(one_miss, two_misses);
  }).join();
}

// A program may store a value that is the flag value.
TEST(DszoomDriver, TheFlagValueIsAValueLikeAnyOther) {
  Dszoom machine(2);
  CheckedProcessor p(machine, 0);
  p.store(8, MG_FINE_FLAG64);
  p.store(16, MG_FINE_FLAG32);
  EXPECT_EQ(p.load(8), MG_FINE_FLAG64);
  std::thread([&] {
    ProcessorProfile profile;
    set_this_profile(profile);
    CheckedProcessor q(machine, 1);
    EXPECT_EQ(q.load(8), MG_FINE_FLAG64);
    const uint64_t before = remote(q);
    EXPECT_EQ(q.load(8), MG_FINE_FLAG64);
    EXPECT_EQ(q.load(16), MG_FINE_FLAG32);
    EXPECT_EQ(remote(q), before) << "a false miss is settled in the node";
    EXPECT_EQ(counted(profile, Counter::kFalseMisses), 2u);
    static ProcessorProfile nobody;
    set_this_profile(nobody);
  }).join();
}

TEST(DszoomDriver, PagesOfAnotherProtocolAreLeftToIt) {
  Dszoom machine(2);
  CheckedProcessor p(machine, 0);
  pages_of_another_protocol_are_left_to_it(machine, p);
  EXPECT_EQ(remote(p), 0u);
}

// A page that was kept by pages is taken over. The home has its data; a node that has taken it before the home does uses it
// already.
TEST(DszoomDriver, APageMovesToLines) {
  Dszoom machine(2);
  const PageId page(InterleavedHomes::kPageGrain);
  const uint64_t offset = page.value * kPage;
  for (const unsigned n : {0u, 1u}) {
    EXPECT_FALSE(machine.node(n).driver->keeps_page(page));
    EXPECT_EQ(machine.word(n, offset), kExclusive) << "stores are left to faults";
    const uint64_t old = 7 + n;
    std::memcpy(machine.node(n).region->alias(page), &old, sizeof old);
  }
  std::atomic<uint64_t>& epoch = machine.node(1).hazards->rights_epoch();
  epoch.fetch_or(MG_FINE_EPOCH_CACHED);
  const uint64_t before = epoch.load();
  machine.node(1).driver->keeper()->take(page, 1, NodeId(0));
  EXPECT_TRUE(machine.node(1).driver->keeps_page(page));
  EXPECT_EQ(machine.word(1, offset), kInvalid);
  EXPECT_NE(epoch.load(), before) << "the node had cached the right to store there";
  std::thread([&] {
    CheckedProcessor p(machine, 1);
    EXPECT_EQ(p.load(offset), 7u) << "the home's";
    p.store(offset, 10);
    p.store(offset + 64, 11);
  }).join();
  machine.node(0).driver->keeper()->take(page, 1, NodeId(0));
  EXPECT_EQ(machine.word(1, offset), kExclusive) << "the home has left the entry as it was";
  CheckedProcessor home(machine, 0);
  EXPECT_EQ(home.load(offset), 10u);
  EXPECT_EQ(home.load(offset + 64), 11u);
  EXPECT_EQ(home.load(offset + 128), 0u);
  home.store(offset, 12);
  EXPECT_EQ(machine.word(1, offset), kInvalid);
}

// An address of memory that may move is handed to code without checks.
TEST(DszoomDriver, TakesNoMoreOnceCodeWithoutChecksKnowsAnAddress) {
  Dszoom machine(2);
  LineMemory& driver = *machine.node(0).driver;
  const auto address = [&](uint64_t page) {
    return reinterpret_cast<uintptr_t>(machine.node(0).region->base()) + page * kPage;
  };
  driver.is_handed_out(address(InterleavedHomes::kUnallocated));
  driver.is_handed_out(address(InterleavedHomes::kPageGrain - 1));
  EXPECT_FALSE(driver.keeper()->takes_no_more());
  driver.is_handed_out(address(InterleavedHomes::kPageGrain));
  EXPECT_TRUE(driver.keeper()->takes_no_more());
}

TEST(DszoomDriver, ARequesterWaitsForTheHazardsOnItsLine) {
  for (const bool stores : {true, false}) {
    Dszoom machine(2);
    a_right_is_taken_between_hazards(machine, stores);
  }
}

TEST(DszoomDriver, AReaderDoesNotWaitForHazardsOfLoads) {
  Dszoom machine(2);
  a_reader_does_not_wait_for_hazards_of_loads(machine);
}

// This also holds for a node whose hazards take more than one get.
TEST(DszoomDriver, CachedRightsAreInvalidatedWhenALineIsRevoked) {
  for (const unsigned more_slots : {0, 40}) {
    Dszoom machine(2);
    CheckedProcessor home(machine, 0);
    for (unsigned i = 0; i < more_slots; ++i) machine.node(0).hazards->take();
    number_lines(home, 8);
    std::atomic<uint64_t>& epoch = machine.node(0).hazards->rights_epoch();
    std::thread([&] {
      CheckedProcessor p(machine, 1);
      const auto cost_of_add = [&](uint64_t line) {
        const uint64_t before = remote(p);
        EXPECT_EQ(p.add(line * 64, 1), line);
        return remote(p) - before;
      };
      cost_of_add(0);
      const uint64_t usual = cost_of_add(1);
      EXPECT_EQ(epoch.load(), 0u) << "nothing was cached";
      epoch.fetch_or(MG_FINE_EPOCH_CACHED);
      const uint64_t with_epoch = cost_of_add(2);
      const uint64_t first = epoch.load();
      EXPECT_EQ(first & 3, 0u);
      EXPECT_NE(first, 0u);
      EXPECT_GT(with_epoch, usual);
      EXPECT_EQ(cost_of_add(3), usual) << "they are known now";
      EXPECT_EQ(epoch.load(), first);
      // Other nodes have replaced them.
      epoch.store(fresh_rights_epoch(NodeId(0)));
      const uint64_t others = epoch.load();
      cost_of_add(4);
      EXPECT_EQ(epoch.load(), others);
      EXPECT_EQ(cost_of_add(5), usual);
      epoch.fetch_or(MG_FINE_EPOCH_CACHED);
      EXPECT_EQ(p.load(6 * 64), 6u);
      EXPECT_EQ(epoch.load() & 3, 0u) << "the right to store is a right, too";
      epoch.fetch_or(MG_FINE_EPOCH_CACHED);
      const uint64_t odd = epoch.load();
      EXPECT_EQ(p.load(6 * 64), 6u);
      EXPECT_EQ(epoch.load(), odd) << "nothing was taken";
    }).join();
  }
}

class DszoomStress : public testing::TestWithParam<Shape> {
 protected:
  Dszoom machine_{GetParam().nodes, GetParam().line_shift, Runs::kLearned};
};

TEST_P(DszoomStress, NoUpdateIsLost) {
  no_update_is_lost(machine_, GetParam());
}
TEST_P(DszoomStress, ABatchIsOneMoment) {
  a_batch_is_one_moment(machine_, GetParam());
}
TEST_P(DszoomStress, ASpinLockOfCheckedAccessesExcludes) {
  a_spin_lock_excludes(machine_, GetParam());
}
TEST_P(DszoomStress, StoreBufferingShowsNoOldValues) {
  store_buffering_shows_no_old_values(machine_, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, DszoomStress,
                         testing::Values(Shape{2, 1, 6}, Shape{2, 2, 6}, Shape{4, 1, 5}, Shape{3, 2, 8},
                                         Shape{3, 2, 11}),
                         [](const auto& shape) { return in_words(shape.param); });

}  // namespace
}  // namespace multigrain::dszoom
