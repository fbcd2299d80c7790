// The HLRC driver with real faults and real one-sided operations, several nodes in one process.
//
// Each node has its own region, at its own addresses, its own access rights, fabric and driver; its processors are
// threads. No node has a service thread, nobody polls, and no message can be sent: whatever works here runs on nobody's
// processor but the one who wants it. Synchronisation between processors is the test's own (atomics and std::barrier)
// around Driver::release() and Driver::acquire().

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "coherence/hlrc/driver.h"
#include "coherence/hlrc/words.h"
#include "driver_nodes.h"
#include "profile/this_thread.h"
#include "random_phases.h"

namespace multigrain::hlrc {
namespace {

constexpr uint64_t kRegionSize = uint64_t{64} << 20;

using driver_nodes::OneSided;
using driver_nodes::RunsOfHomes;

struct TestNode : driver_nodes::NodeMemory {
  std::unique_ptr<OneSided> fabric;
  std::unique_ptr<Driver> driver;
};

// No page moves or keeps its rights for what the driver has learnt.
constexpr Driver::Options kPlain{
    .runs = false, .updates = Driver::Updates::kNever, .chains = PageChains::Follow::kNever};
constexpr Driver::Options kOpensAhead{.open_ahead = 16,
                                      .fetch_ahead = 4,
                                      .runs = false,
                                      .updates = Driver::Updates::kNever,
                                      .chains = PageChains::Follow::kNever};
// As the product has it, but for groups that are fetched and opened ahead.
constexpr Driver::Options kLearns{.open_ahead = 16, .fetch_ahead = 4};
// Each page counts as in use.
constexpr Driver::Options kUpdates{.open_ahead = 16, .fetch_ahead = 4, .updates = Driver::Updates::kAlways};

class Machine : public driver_nodes::DriverNodes<TestNode> {
 public:
  // Without `homes`, each node has so many pages in turn.
  Machine(unsigned nodes, AccessMechanism access, size_t page_size, const Driver::Options& options = kPlain,
          unsigned run_of_homes = 1, uint64_t region_size = kRegionSize, HomeDirectory* homes = nullptr)
      : DriverNodes(nodes, access, page_size, region_size), homes_(nodes, run_of_homes) {
    for (unsigned n = 0; n < nodes; ++n) {
      TestNode& each = node(n);
      each.fabric = std::make_unique<OneSided>(*each.memory);
      HomeDirectory& directory = homes != nullptr ? *homes : homes_;
      auto driver = Driver::create({*each.fabric, *each.region, *each.rights, directory, WaitPolicy{20'000}}, options);
      EXPECT_TRUE(driver) << driver.error().message;
      each.driver = std::move(*driver);
    }
  }

  void release(unsigned n) { node(n).driver->release(); }
  void acquire(unsigned n, unsigned from) { node(n).driver->acquire(NodeId(static_cast<uint16_t>(from))); }
  void acquire_all(unsigned n) { node(n).driver->acquire_all(); }
  void release_at_barrier(unsigned n) { node(n).driver->release_at_barrier(); }
  void acquire_at_barrier(unsigned n) { node(n).driver->acquire_at_barrier(); }
  void offer_lines(LineKeeper& lines) {
    for (unsigned n = 0; n < nodes(); ++n) EXPECT_TRUE(node(n).driver->offer_lines(lines));
  }
  void barrier() {
    for (unsigned n = 0; n < nodes(); ++n) release_at_barrier(n);
    for (unsigned n = 0; n < nodes(); ++n) acquire_at_barrier(n);
  }
  void end_serial_part(unsigned n) { node(n).driver->end_serial_part(); }
  unsigned home(unsigned n, uint64_t page) { return node(n).driver->home_now(PageId(page)).value; }
  bool help(unsigned n) { return node(n).driver->help(); }
  [[nodiscard]] bool is_clean(unsigned n) { return node(n).driver->is_clean(); }
  [[nodiscard]] uint64_t remote(unsigned n) { return node(n).fabric->remote(); }
  // How many notices of `writer` node n has taken in; of itself, has published.
  [[nodiscard]] uint64_t known(unsigned n, unsigned writer) {
    return node(n).driver->known(NodeId(static_cast<uint16_t>(writer)));
  }
  [[nodiscard]] Page inspect(unsigned n, uint64_t page) { return node(n).driver->inspect(PageId(page)); }

 private:
  RunsOfHomes homes_;
};

// What the shells have counted on the test's own thread, ever.
uint64_t counted(Counter counter) {
  static ProcessorProfile profile;
  set_this_profile(profile);
  ProfileSnapshot snapshot;
  profile.snapshot(snapshot);
  return snapshot.counters[static_cast<size_t>(counter)];
}

class HlrcDriver : public testing::TestWithParam<AccessMechanism> {};

// Lazy: without an acquire nothing is ever invalidated, whatever others release. With one, what is named is.
TEST_P(HlrcDriver, ANodeThatNeverAcquiresNeverInvalidates) {
  Machine machine(3, GetParam(), 4096);
  EXPECT_EQ(machine.read(2, 0, 5), 0u);  // at home on node 0
  EXPECT_EQ(machine.read(2, 1, 5), 0u);  // on node 1
  const uint64_t before = machine.remote(2);
  for (uint64_t i = 1; i <= 100; ++i) {
    machine.write(0, 0, 5, i);
    machine.write(0, 1, 5, i);
    machine.release(0);
    ASSERT_EQ(machine.read(2, 0, 5), 0u);
    ASSERT_EQ(machine.read(2, 1, 5), 0u);
    machine.release(2);
  }
  EXPECT_EQ(machine.inspect(2, 0).state, PageState::kRead);
  EXPECT_EQ(machine.inspect(2, 1).state, PageState::kRead);
  EXPECT_EQ(machine.remote(2), before);
  machine.acquire(2, 1);  // which knows nothing of node 0
  EXPECT_EQ(machine.read(2, 1, 5), 0u);
  machine.acquire(2, 0);
  EXPECT_EQ(machine.inspect(2, 0).state, PageState::kInvalid);
  EXPECT_EQ(machine.read(2, 0, 5), 100u);
  EXPECT_EQ(machine.read(2, 1, 5), 100u);
}

TEST_P(HlrcDriver, WhatANodeHasAcquiredItPassesOn) {
  Machine machine(3, GetParam(), 4096);
  for (uint64_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(machine.read(2, 0, 1), i - 1);
    machine.write(0, 0, 1, i);
    machine.release(0);
    machine.acquire(1, 0);
    machine.release(1);  // has written nothing
    machine.acquire(2, 1);
    ASSERT_EQ(machine.read(2, 0, 1), i);
  }
}

// A fetch is one operation, and an atomic before it where the home does not know of it.
TEST_P(HlrcDriver, AFetchIsAMarkAndAGet) {
  Machine machine(2, GetParam(), 4096);
  static_cast<void>(machine.read(1, 0, 0));
  EXPECT_EQ(machine.remote(1), 2u);
  for (uint64_t i = 1; i <= 10; ++i) {
    machine.write(0, 0, 0, i);
    machine.release(0);
    machine.acquire(1, 0);
    const uint64_t before = machine.remote(1);
    ASSERT_EQ(machine.read(1, 0, 0), i);
    EXPECT_EQ(machine.remote(1), before + 2);
  }
  EXPECT_EQ(machine.remote(0), 0u) << "a home fetches nothing and deposits nothing";
}

// A page that nobody has fetched costs its home nothing at releases; after a mark it does, once.
TEST_P(HlrcDriver, AHomePageIsWriteProtectedOnceAnotherNodeHasFetchedIt) {
  Machine machine(2, GetParam(), 4096);
  machine.write(0, 0, 0, 1);
  EXPECT_TRUE(machine.is_clean(0));
  machine.release(0);
  EXPECT_EQ(machine.inspect(0, 0).state, PageState::kWrite);
  static_cast<void>(machine.read(1, 0, 0));
  EXPECT_FALSE(machine.is_clean(0)) << "there is a mark to look at";
  machine.write(0, 0, 0, 2);
  machine.release(0);
  EXPECT_EQ(machine.inspect(0, 0).state, PageState::kRead);
  EXPECT_FALSE(machine.inspect(0, 0).shared) << "what node 1 has is gone when it next acquires";
  machine.acquire(1, 0);
  EXPECT_EQ(machine.read(1, 0, 0), 2u);
  machine.release(0);
  EXPECT_TRUE(machine.inspect(0, 0).shared);
  machine.write(0, 0, 0, 3);
  EXPECT_FALSE(machine.is_clean(0));
  machine.release(0);
  machine.acquire(1, 0);
  EXPECT_EQ(machine.read(1, 0, 0), 3u);
}

// Once the notice is out, the home writes for itself until somebody fetches again.
TEST_P(HlrcDriver, AHomePageThatNobodyFetchesAgainCostsNothingAnyMore) {
  Machine machine(2, GetParam(), 4096);
  static_cast<void>(machine.read(1, 0, 0));
  machine.write(0, 0, 0, 1);
  machine.release(0);
  machine.write(0, 0, 0, 2);
  EXPECT_EQ(machine.inspect(0, 0).state, PageState::kWrite);
  for (uint64_t i = 3; i < 10; ++i) {
    EXPECT_TRUE(machine.is_clean(0));
    machine.release(0);
    machine.write(0, 0, 0, i);
    EXPECT_EQ(machine.inspect(0, 0).state, PageState::kWrite);
  }
  EXPECT_EQ(machine.read(1, 0, 0), 0u);
  machine.acquire(1, 0);
  EXPECT_EQ(machine.read(1, 0, 0), 9u);
  machine.write(0, 0, 0, 10);
  EXPECT_FALSE(machine.is_clean(0)) << "there is a mark to look at";
  machine.release(0);
  machine.acquire(1, 0);
  EXPECT_EQ(machine.read(1, 0, 0), 10u);
}

TEST_P(HlrcDriver, ADirtyPageThatANoticeNamesKeepsBothNodesWrites) {
  Machine machine(3, GetParam(), 4096);
  for (uint64_t i = 1; i <= 20; ++i) {
    machine.write(0, 2, 0, i);
    machine.write(1, 2, 1, i);
    machine.release(0);
    machine.acquire(1, 0);  // the page is dirty there
    EXPECT_EQ(machine.inspect(1, 2).state, PageState::kInvalid);
    EXPECT_EQ(machine.read(1, 2, 0), i);
    EXPECT_EQ(machine.read(1, 2, 1), i);
    machine.release(1);
    machine.acquire(0, 1);
    EXPECT_EQ(machine.read(0, 2, 1), i);
    EXPECT_EQ(machine.read(2, 2, 0), i);  // at home
    EXPECT_EQ(machine.read(2, 2, 1), i);
  }
}

// More notices than the log holds, since node 1 last looked: it invalidates all that it has, also what no notice named.
TEST_P(HlrcDriver, WhoComesTooLateForALogInvalidatesEverything) {
  constexpr uint64_t kElsewhere = 2;  // at home at node 2, so that node 0 notices each interval's write
  Machine machine(3, GetParam(), 4096);
  for (const uint64_t page : {uint64_t{0}, kElsewhere, uint64_t{3}}) EXPECT_EQ(machine.read(1, page, 0), 0u);
  machine.release(0);
  machine.write(0, 0, 0, 7);
  machine.release(0);
  for (uint64_t i = 1; i <= words::kNoticeCount; ++i) {
    machine.write(0, kElsewhere, 0, i);
    machine.release(0);
  }
  EXPECT_EQ(machine.read(1, kElsewhere, 0), 0u);
  machine.acquire(1, 0);
  for (const uint64_t page : {uint64_t{0}, kElsewhere, uint64_t{3}})
    EXPECT_EQ(machine.inspect(1, page).state, PageState::kInvalid) << page;
  EXPECT_EQ(machine.read(1, kElsewhere, 0), words::kNoticeCount);
  EXPECT_EQ(machine.read(1, 0, 0), 7u);
  // And then all is as before.
  machine.write(0, kElsewhere, 0, 1);
  machine.release(0);
  machine.acquire(1, 0);
  EXPECT_EQ(machine.inspect(1, 0).state, PageState::kRead);
  EXPECT_EQ(machine.read(1, kElsewhere, 0), 1u);
}

// The writer never stops, and the reader acquires when the log is about to go round, or has gone: entries are
// overwritten while they are read. Whatever happens, the reader sees all that was released before it acquired.
// With one mechanism: it takes seconds, and which one does not matter to the log.
TEST(HlrcDriverLog, AReaderOfALogThatGoesRoundMeanwhileMissesNothing) {
  constexpr uint64_t kPages = 40;
  Machine machine(3, AccessMechanism::kUserfault, 4096);
  // At home on neither, and none beside the next, so that each is an entry of its own.
  const auto page = [](uint64_t i) { return 3 * i + 2; };
  std::atomic<uint64_t> released{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t value = 1; !stop.load(); ++value) {
      for (uint64_t i = 0; i < kPages; ++i) machine.write(0, page(i), 0, value);
      machine.release(0);
      released.store(value);
    }
  });
  uint64_t wrong = 0;
  uint64_t taken_in = 0;
  const uint64_t lost_before = counted(Counter::kNoticesLost);
  for (const uint64_t lag : {words::kNoticeCount - kPages, words::kNoticeCount + kPages}) {
    const uint64_t wanted = taken_in + lag;
    while (machine.known(0, 0) < wanted) std::this_thread::yield();
    const uint64_t before = released.load();
    machine.acquire(1, 0);
    taken_in = machine.known(1, 0);
    for (uint64_t i = 0; i < kPages; ++i)
      if (machine.read(1, page(i), 0) < before) ++wrong;
  }
  stop.store(true);
  writer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(counted(Counter::kNoticesLost) - lost_before, 1u);
}

// More fetches than their ring holds between two looks of the home: it counts all its pages as fetched from then on,
// those that it could write before the fetch and those that it touches only afterwards.
TEST_P(HlrcDriver, AHomeThatLosesCountOfTheFetchesCountsEveryPageAsFetched) {
  constexpr uint64_t kFetched = words::kFetchLogCount + 1;
  constexpr uint64_t kWritten = 5, kRead = 6, kUntouched = 7, kSeen = kFetched - 1;
  Machine machine(2, GetParam(), 4096, kPlain, kFetched, 2 * kFetched * 4096);  // the first half is at home on node 0
  const uint64_t lost_before = counted(Counter::kFetchLogOverflows);
  machine.write(0, kWritten, 0, 1);
  machine.release(0);
  EXPECT_EQ(machine.inspect(0, kWritten).state, PageState::kWrite);
  EXPECT_EQ(machine.read(0, kRead, 0), 0u);
  for (uint64_t page = 0; page < kFetched; ++page) ASSERT_EQ(machine.read(1, page, 0), page == kWritten ? 1u : 0u);
  EXPECT_FALSE(machine.is_clean(0));
  for (uint64_t i = 2; i < 5; ++i) {
    for (const uint64_t page : {kWritten, kRead, kUntouched, kSeen}) machine.write(0, page, 0, i);
    EXPECT_FALSE(machine.is_clean(0));
    machine.release(0);
    EXPECT_EQ(counted(Counter::kFetchLogOverflows) - lost_before, 1u);
    EXPECT_EQ(machine.read(1, kWritten, 0), i == 2 ? 1 : i - 1) << "nothing is invalidated before the acquire";
    machine.acquire(1, 0);
    for (const uint64_t page : {kWritten, kRead, kUntouched, kSeen}) {
      EXPECT_EQ(machine.inspect(1, page).state, PageState::kInvalid);
      EXPECT_EQ(machine.read(1, page, 0), i);
    }
  }
}

// A page in use keeps its rights at the end of an interval and at notices. Each node's writes go where they have to.
TEST_P(HlrcDriver, PagesInUseKeepTheirRights) {
  Machine machine(3, GetParam(), 4096, kUpdates);
  const uint64_t updates_before = counted(Counter::kUpdates);
  const uint64_t twins_before = counted(Counter::kTwins);
  for (uint64_t i = 1; i <= 20; ++i) {
    machine.write(0, 2, 0, i);  // at home at node 2
    machine.write(1, 2, 1, i);
    EXPECT_EQ(machine.read(2, 2, 2), 0u);
    machine.release(0);
    machine.acquire(1, 0);
    machine.release(1);
    machine.acquire(0, 1);
    for (unsigned n = 0; n < 3; ++n) {
      ASSERT_EQ(machine.read(n, 2, 0), i);
      ASSERT_EQ(machine.read(n, 2, 1), i);
      ASSERT_EQ(machine.inspect(n, 2).state, PageState::kWrite) << "at node " << n << ", where no fault took it";
    }
  }
  EXPECT_EQ(counted(Counter::kTwins) - twins_before, 2u) << "each writer has made one";
  EXPECT_EQ(counted(Counter::kUpdates) - updates_before, 40u);
}

// A page that is read between notices, each time, counts as in use after some of them; a page that is not, does not.
TEST_P(HlrcDriver, APageThatIsReadBetweenNoticesIsUpdated) {
  Machine machine(2, GetParam(), 4096, {.runs = false});
  const uint64_t updates_before = counted(Counter::kUpdates);
  constexpr uint64_t kUsed = 0, kUnused = 2;  // at home at node 0
  static_cast<void>(machine.read(1, kUnused, 0));
  for (uint64_t i = 1; i <= 40; ++i) {
    machine.write(0, kUsed, 0, i);
    machine.write(0, kUnused, 0, i);
    machine.release(0);
    machine.acquire(1, 0);
    ASSERT_EQ(machine.read(1, kUsed, 0), i);
  }
  EXPECT_GT(counted(Counter::kUpdates) - updates_before, 20u);
  EXPECT_EQ(machine.inspect(1, kUnused).state, PageState::kInvalid);
  EXPECT_EQ(machine.read(1, kUnused, 0), 40u);
}

// Pages that were fetched together are fetched together again, by one operation, and so are those written together.
TEST_P(HlrcDriver, PagesThatMovedTogetherMoveTogetherAgain) {
  constexpr uint64_t kPages = 8;
  Machine machine(2, GetParam(), 4096, {.updates = Driver::Updates::kNever}, kPages);  // all at home on node 0
  const auto episode = [&](uint64_t value) {
    for (uint64_t page = 0; page < kPages; ++page) machine.write(0, page, 0, value);
    machine.release(0);
    machine.acquire(1, 0);
    for (uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(machine.read(1, page, 0), value);
    for (uint64_t page = 0; page < kPages; ++page) machine.write(1, page, 1, value);
    machine.release(1);
    machine.acquire(0, 1);
    for (uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(machine.read(0, page, 1), value);
  };
  episode(1);
  const uint64_t fetches_before = counted(Counter::kReadFaults);
  const uint64_t upgrades_before = counted(Counter::kUpgrades);
  const uint64_t pages_before = counted(Counter::kPagesFetched);
  episode(2);
  EXPECT_EQ(counted(Counter::kPagesFetched) - pages_before, kPages);
  EXPECT_EQ(counted(Counter::kReadFaults) - fetches_before, 1u);
  EXPECT_LE(counted(Counter::kUpgrades) - upgrades_before, 2u) << "node 1's pages, and node 0's";
}

// A processor that goes through memory with a constant stride faults less and less often, and gets what it is due.
TEST_P(HlrcDriver, FaultsAtAConstantStrideAreForeseen) {
  constexpr uint64_t kSteps = 40, kStride = 7, kPages = kSteps * kStride;
  const auto faults_of = [](Counter counter, auto&& walk) {
    const uint64_t before = counted(counter);
    walk();
    return counted(counter) - before;
  };
  Machine machine(2, GetParam(), 4096, {.open_ahead = 16, .updates = Driver::Updates::kNever}, kPages);
  const auto write = [&](unsigned node, uint64_t value) {
    for (uint64_t i = 0; i < kSteps; ++i) machine.write(node, i * kStride, node, value + i);
  };
  const auto expect_written = [&](unsigned node, unsigned writer, uint64_t value) {
    for (uint64_t i = 0; i < kSteps; ++i) ASSERT_EQ(machine.read(node, i * kStride, writer), value + i) << i;
  };
  // The home touches pages first.
  EXPECT_LE(faults_of(Counter::kLocalFaults, [&] { write(0, 100); }), 8u);
  machine.release(0);
  machine.acquire(1, 0);
  EXPECT_LE(faults_of(Counter::kReadFaults, [&] { expect_written(1, 0, 100); }), 8u);
  EXPECT_LE(faults_of(Counter::kUpgrades, [&] { write(1, 200); }), 8u);
  machine.release(1);
  machine.acquire(0, 1);
  expect_written(0, 1, 200);
  // The home writes pages of which node 1 has copies: few of them may be opened in vain.
  machine.release(0);
  machine.acquire(1, 0);
  expect_written(1, 0, 100);
  machine.release(0);
  const uint64_t upgrades = faults_of(Counter::kUpgrades, [&] { write(0, 300); });
  EXPECT_GE(upgrades, 8u);
  EXPECT_LE(upgrades, kSteps * 3 / 4);
  machine.release(0);
  machine.acquire(1, 0);
  expect_written(1, 0, 300);
  // No page between them has been touched.
  for (uint64_t page = 1; page < kPages; page += kStride)
    EXPECT_EQ(machine.inspect(1, page).state, PageState::kInvalid);
}

// Pages next to each other, written among many others, are opened more and more at a time as well.
TEST_P(HlrcDriver, ManyPlacesThatAreWrittenInTurnAreForeseen) {
  constexpr uint64_t kPlaces = 40, kSteps = 24, kPages = kPlaces * 100;
  Machine machine(2, GetParam(), 4096, {.open_ahead = 16, .updates = Driver::Updates::kNever}, kPages);
  const uint64_t before = counted(Counter::kLocalFaults);
  for (uint64_t step = 0; step < kSteps; ++step)
    for (uint64_t place = 0; place < kPlaces; ++place) machine.write(0, 100 * place + step, 0, step);
  EXPECT_LE(counted(Counter::kLocalFaults) - before, kPlaces * kSteps / 2);
}

// A list whose elements lie on pages in no order is followed again and again: its pages come before the processor gets there. When the
// list has another order, few pages come in vain.
TEST_P(HlrcDriver, PagesOfAListAreForeseenOnceTheirOrderIsKnown) {
  constexpr uint64_t kLength = 60, kPages = 1000;
  Machine machine(2, GetParam(), 4096, {.fetch_ahead = 4, .updates = Driver::Updates::kNever}, kPages);
  std::vector<uint64_t> list;
  std::mt19937 random(1);
  while (list.size() < kLength) {
    const uint64_t page = random() % kPages;
    const auto is_near = [&](uint64_t other) { return page / 6 == other / 6; };
    if (std::ranges::none_of(list, is_near)) list.push_back(page);
  }
  struct Faults {
    uint64_t with_fetch, pages;
  };
  uint64_t value = 0;
  const auto follow = [&] {
    ++value;
    for (const uint64_t page : list) machine.write(0, page, 0, value);
    machine.release(0);
    machine.acquire(1, 0);
    const Faults before{counted(Counter::kReadFaults), counted(Counter::kPagesFetched)};
    for (const uint64_t page : list) EXPECT_EQ(machine.read(1, page, 0), value);
    return Faults{counted(Counter::kReadFaults) - before.with_fetch, counted(Counter::kPagesFetched) - before.pages};
  };
  follow();  // the next few pages are tried here and there
  EXPECT_GE(follow().with_fetch, kLength * 3 / 4);
  for (unsigned i = 0; i < 3; ++i) follow();
  const Faults known = follow();
  EXPECT_LE(known.with_fetch, 3u);
  EXPECT_EQ(known.pages, kLength);
  std::ranges::shuffle(list, random);
  EXPECT_LE(follow().pages, kLength * 3 / 2);
  for (unsigned i = 0; i < 4; ++i) follow();
  EXPECT_LE(follow().with_fetch, 3u);
  // In a new order each time.
  uint64_t pages = 0;
  for (unsigned i = 0; i < 10; ++i) {
    std::ranges::shuffle(list, random);
    pages += follow().pages;
  }
  EXPECT_LE(pages, 10 * kLength * 11 / 10);
}

// Pages up to `settled` are at home on node 0, which only some nodes have asked for; nobody has touched the others.
class UntouchedBehind final : public RunsOfHomes {
 public:
  UntouchedBehind(uint64_t known, uint64_t settled) : RunsOfHomes(1, 1), known_(known), settled_(settled) {}
  std::optional<NodeId> home_of(PageId page) override { return up_to(known_, page); }
  std::optional<NodeId> ask_home(PageId page) override { return up_to(settled_, page); }
  bool is_first_touch(PageId) override { return true; }
  std::optional<NodeId> claim_home(PageId page) override {
    if (page.value >= settled_) ++claimed;
    return NodeId(0);
  }
  unsigned claimed = 0;

 private:
  static std::optional<NodeId> up_to(uint64_t end, PageId page) {
    return page.value < end ? std::optional(NodeId(0)) : std::nullopt;
  }
  const uint64_t known_, settled_;
};

// Remembers which pages it has been given, by any node.
struct TakenPages final : LineKeeper {
  bool may_take(PageId) override { return true; }
  [[nodiscard]] std::optional<uint32_t> cost(PageId) const override { return std::nullopt; }
  [[nodiscard]] bool takes_no_more() const override { return false; }
  void take(PageId first, uint64_t count, NodeId home) override {
    EXPECT_EQ(home, NodeId(0));
    for (uint64_t page = first.value; page < first.value + count; ++page) taken.insert(page);
  }
  std::set<uint64_t> taken;
};

// Lines cost more and more, or nothing.
struct PricedPages final : LineKeeper {
  explicit PricedPages(uint32_t more) : more_(more) {}
  bool may_take(PageId) override { return true; }
  [[nodiscard]] bool takes_no_more() const override { return false; }
  void take(PageId first, uint64_t count, NodeId) override {
    for (uint64_t page = first.value; page < first.value + count; ++page) taken.insert(page);
  }
  [[nodiscard]] std::optional<uint32_t> cost(PageId) const override { return cost_ += more_; }
  std::set<uint64_t> taken;

 private:
  uint32_t more_;
  mutable uint32_t cost_ = 0;
};

// Both nodes write half of the lines of each page, in turns of one line: by what they change, lines would cost more. Only a trial can say
// that they do not.
TEST_P(HlrcDriver, PagesMoveToLinesWhereATrialShowsThatLinesCostLess) {
  constexpr uint64_t kPages = 16, kLines = 4096 / 64, kWordsOfLine = 8;
  for (const bool is_dear : {false, true}) {
    Driver::Options options = kPlain;
    options.homes_follow = true;
    PricedPages lines(is_dear ? 10'000 : 0);
    Machine machine(2, GetParam(), 4096, options);
    machine.offer_lines(lines);
    for (uint64_t round = 1; round <= 40; ++round) {
      for (uint64_t page = 0; page < kPages; ++page) {
        if (lines.taken.contains(page)) continue;
        for (uint64_t line = 0; line < kLines; ++line) machine.write(line % 2, page, line * kWordsOfLine, round);
      }
      machine.barrier();
    }
    // Each node tries a page, and later another one, and a third one at most.
    if (is_dear) {
      EXPECT_GE(lines.taken.size(), 1u);
      EXPECT_LE(lines.taken.size(), 6u);
    } else {
      EXPECT_EQ(lines.taken.size(), kPages);
    }
  }
}

// As many pages go along as have moved before, but none that has no home: nobody's home is settled by that.
TEST_P(HlrcDriver, PagesBehindThoseThatMoveToLinesGoAlongIfTheyHaveHomes) {
  Driver::Options options = kPlain;
  options.homes_follow = true;
  options.to_lines = Driver::ToLines::kAtOnce;
  for (const uint64_t settled : {8, 5}) {
    UntouchedBehind homes(4, settled);
    TakenPages lines;
    Machine machine(2, GetParam(), 4096, options, 1, kRegionSize, &homes);
    machine.offer_lines(lines);
    // Both nodes write the pages, so that no home moves.
    const auto write = [&](uint64_t page) {
      for (unsigned node = 0; node < 2; ++node) machine.write(node, page, node, page + 1);
    };
    for (uint64_t page = 0; page < 3; ++page) write(page);
    machine.barrier();
    EXPECT_EQ(lines.taken, (std::set<uint64_t>{0, 1, 2}));
    write(3);
    machine.release(1);
    machine.barrier();
    std::set<uint64_t> expected = {0, 1, 2, 3, 4, 5, 6};
    while (*expected.rbegin() >= settled) expected.erase(std::prev(expected.end()));
    EXPECT_EQ(lines.taken, expected);
    EXPECT_EQ(homes.claimed, 0u);
  }
}

// Pages that the home wrote before processors of other nodes ran are not noticed for that alone.
TEST_P(HlrcDriver, PagesWrittenInTheSerialPartAreNotNoticedUnlessTheyAreWrittenAgain) {
  constexpr uint64_t kPages = 6;
  Machine machine(2, GetParam(), 4096, kPlain, kPages);
  for (uint64_t page = 0; page < kPages; ++page) machine.write(0, page, 0, 1);
  machine.end_serial_part(0);
  for (uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(machine.read(1, page, 0), 1u);
  machine.write(0, 3, 0, 2);
  machine.release(0);
  machine.acquire(1, 0);
  for (uint64_t page = 0; page < kPages; ++page)
    EXPECT_EQ(machine.inspect(1, page).state, page == 3 ? PageState::kInvalid : PageState::kRead) << page;
  EXPECT_EQ(machine.read(1, 3, 0), 2u);
}

// A barrier of all processors, each node with one.
void meet(Machine& machine) {
  for (unsigned n = 0; n < machine.nodes(); ++n) machine.release_at_barrier(n);
  for (unsigned n = 0; n < machine.nodes(); ++n) machine.acquire_at_barrier(n);
}

// A node that writes pages alone becomes their home at the next barrier, and from then on writes them in place.
TEST_P(HlrcDriver, AHomeFollowsTheNodeThatWritesThePageAlone) {
  Machine machine(3, GetParam(), 4096);
  constexpr uint64_t kMoves = 3, kShared = 6, kOther = 9;  // at home at node 0
  const uint64_t twins_before = counted(Counter::kTwins);
  machine.write(1, kMoves, 0, 1);
  machine.write(1, kShared, 0, 1);
  machine.write(2, kShared, 1, 2);
  machine.write(2, kOther, 0, 3);
  meet(machine);
  for (unsigned n = 0; n < 3; ++n) {
    EXPECT_EQ(machine.home(n, kMoves), 1u);
    EXPECT_EQ(machine.home(n, kShared), 0u) << "two nodes have written it";
    EXPECT_EQ(machine.home(n, kOther), 2u);
  }
  EXPECT_EQ(counted(Counter::kTwins) - twins_before, 4u);
  for (uint64_t i = 2; i < 10; ++i) {
    machine.write(1, kMoves, 0, i);
    machine.write(2, kOther, 0, i);
    meet(machine);
    for (unsigned n = 0; n < 3; ++n) EXPECT_EQ(machine.read(n, kMoves, 0), i);
    EXPECT_EQ(machine.read(0, kOther, 0), i);
    EXPECT_EQ(machine.read(0, kShared, 0), 1u);
    EXPECT_EQ(machine.read(1, kShared, 1), 2u);
  }
  EXPECT_EQ(counted(Counter::kTwins) - twins_before, 4u) << "a home makes no twin";
  // A former home that writes it alone is home again.
  machine.write(0, kMoves, 2, 11);
  machine.write(1, kOther, 1, 12);
  meet(machine);
  EXPECT_EQ(machine.home(2, kMoves), 0u);
  EXPECT_EQ(machine.home(0, kOther), 1u);
  for (unsigned n = 0; n < 3; ++n) {
    EXPECT_EQ(machine.read(n, kMoves, 0), 9u);
    EXPECT_EQ(machine.read(n, kMoves, 2), 11u);
    EXPECT_EQ(machine.read(n, kOther, 0), 9u);
    EXPECT_EQ(machine.read(n, kOther, 1), 12u);
  }
}

// A node that has never looked up where a page is at home counts the home's own episodes as the other nodes do.
TEST_P(HlrcDriver, ANodeThatNeverHeardOfAHomeFindsTheSameAsTheOthers) {
  Machine machine(3, GetParam(), 4096);
  constexpr uint64_t kPage = 3, kBusy = 6;  // at home at node 0
  uint64_t episode = 0;
  const auto meet_after = [&](unsigned writer) {
    machine.write(writer, kPage, 0, ++episode);
    // Two nodes write a page together, so that no episode is a serial one.
    machine.write(1, kBusy, 1, episode);
    machine.write(2, kBusy, 2, episode);
    meet(machine);
  };
  static_cast<void>(machine.read(1, kPage, 1));  // so that the home owes a notice of what it writes
  for (const unsigned writer : {0, 1, 0}) meet_after(writer);
  const unsigned home = machine.home(2, kPage);
  EXPECT_EQ(machine.home(0, kPage), home);
  EXPECT_EQ(machine.home(1, kPage), home);
  for (unsigned n = 0; n < 3; ++n) EXPECT_EQ(machine.read(n, kPage, 0), episode);
}

// What one node writes while the others write nothing says nothing of the parallel part that follows.
TEST_P(HlrcDriver, ASerialEpisodeMovesNoHome) {
  Machine machine(2, GetParam(), 4096);
  for (uint64_t page = 0; page < 8; ++page) machine.write(0, page, 0, page + 1);
  meet(machine);
  for (uint64_t page = 0; page < 8; ++page) {
    EXPECT_EQ(machine.home(0, page), page % 2);
    EXPECT_EQ(machine.read(1, page, 0), page + 1);
  }
}

// More runs of pages than a node can name: no home moves, and the next episode is as any other.
TEST(HlrcDriverEpisode, TooManyRunsOfPagesMoveNoHome) {
  constexpr uint64_t kPages = 2 * (words::kEpisodeRuns + 1);
  Machine machine(2, AccessMechanism::kUserfault, 4096, kPlain, 2 * kPages,
                  2 * kPages * 4096);  // all at home on node 0
  for (uint64_t page = 0; page < kPages; page += 2) machine.write(1, page, 0, page + 1);
  static_cast<void>(machine.read(1, 1, 0));
  machine.release(0);
  machine.write(0, 1, 0, 5);
  meet(machine);
  EXPECT_EQ(machine.home(0, 0), 0u);
  EXPECT_EQ(machine.home(1, 0), 0u);
  machine.write(1, 0, 0, 7);
  machine.write(0, 1, 0, 6);
  static_cast<void>(machine.read(1, 1, 1));
  meet(machine);
  EXPECT_EQ(machine.home(0, 0), 1u);
  EXPECT_EQ(machine.read(0, 0, 0), 7u);
  EXPECT_EQ(machine.read(1, 1, 0), 6u);
  EXPECT_EQ(machine.read(0, kPages - 2, 0), kPages - 1);
}

// Threads, a processor each, that write words of their own on all pages, and after each barrier read everything. Who
// writes a page changes every few episodes.
void homes_move_under_processors_that_run(AccessMechanism access, const Driver::Options& options) {
  constexpr unsigned kNodes = 3, kProcessors = 2;
  constexpr uint64_t kPages = 24, kEpisodes = 40;
  Machine machine(kNodes, access, 4096, options);
  std::barrier all(kNodes * kProcessors);
  std::array<std::unique_ptr<std::barrier<>>, kNodes> here;
  for (auto& each : here) each = std::make_unique<std::barrier<>>(kProcessors);
  std::atomic<uint64_t> wrong{0};
  const auto writer = [](uint64_t page, uint64_t episode) {
    return static_cast<unsigned>((page / 2 + episode / 3) % kNodes);
  };
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < kNodes; ++n)
    for (unsigned p = 0; p < kProcessors; ++p)
      threads.emplace_back([&, n, p] {
        for (uint64_t episode = 1; episode <= kEpisodes; ++episode) {
          for (uint64_t page = 0; page < kPages; ++page)
            if (writer(page, episode) == n || page % 5 == 0) machine.write(n, page, n * kProcessors + p, episode);
          here[n]->arrive_and_wait();
          if (p == 0) machine.release_at_barrier(n);
          all.arrive_and_wait();
          machine.acquire_at_barrier(n);
          for (uint64_t page = 0; page < kPages; ++page)
            for (unsigned of = 0; of < kNodes; ++of)
              if ((writer(page, episode) == of || page % 5 == 0) &&
                  machine.read(n, page, of * kProcessors + (1 - p)) != episode)
                ++wrong;
          all.arrive_and_wait();
        }
      });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST_P(HlrcDriver, HomesMoveUnderProcessorsThatRun) {
  for (const Driver::Options& options : {kOpensAhead, kLearns, kUpdates})
    homes_move_under_processors_that_run(GetParam(), options);
}

TEST_P(HlrcDriver, RandomProgramsWithoutRacesReadWhatWasWritten) {
  for (const Driver::Options& options : {kPlain, kLearns, kUpdates}) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      Machine machine(3, GetParam(), 4096, options);
      run_phases(machine, 3, 2, seed);
    }
  }
}

TEST_P(HlrcDriver, RandomProgramsOnWidePages) {
  for (const Driver::Options& options : {kPlain, kLearns, kUpdates}) {
    Machine machine(2, GetParam(), 65536, options);
    run_phases(machine, 2, 2, 9);
  }
}

TEST_P(HlrcDriver, OneProcessorANode) {
  for (const Driver::Options& options : {kPlain, kLearns, kUpdates}) {
    Machine machine(4, GetParam(), 4096, options);
    run_phases(machine, 4, 1, 17);
  }
}

TEST_P(HlrcDriver, PagesOpenedAhead) {
  Machine machine(3, GetParam(), 4096, kOpensAhead, 3);
  run_phases(machine, 3, 2, 23);
}

// B.3 the other way round: those who wait take parts of what one of them ends, and of what it takes in.
TEST_P(HlrcDriver, ProcessorsThatWaitShareThePageWork) {
  constexpr uint64_t kPages = 300;
  Driver::Options options = kPlain;
  options.cooperative = true;
  Machine machine(2, GetParam(), 4096, options);
  ASSERT_GE(kRegionSize / 4096, 2 * kPages);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> helped{0};
  std::vector<std::thread> waiting;
  for (unsigned n = 0; n < 2; ++n) {
    waiting.emplace_back([&, n] {
      while (!over.load()) helped += machine.help(n) ? 1 : 0;
    });
  }
  // Both nodes write every page, at home and elsewhere, in words of their own.
  for (uint64_t round = 1; round <= 20 || (helped.load() == 0 && round <= 2000); ++round) {
    for (unsigned n = 0; n < 2; ++n)
      for (uint64_t page = 0; page < kPages; ++page) machine.write(n, page, n, round + page);
    for (unsigned n = 0; n < 2; ++n) machine.release(n);
    for (unsigned n = 0; n < 2; ++n) machine.acquire_all(n);
    for (unsigned n = 0; n < 2; ++n)
      for (uint64_t page = 0; page < kPages; ++page) ASSERT_EQ(machine.read(n, page, 1 - n), round + page) << page;
  }
  over.store(true);
  for (std::thread& thread : waiting) thread.join();
  EXPECT_GT(helped.load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, HlrcDriver,
                         testing::Values(AccessMechanism::kUserfault, AccessMechanism::kMprotect),
                         [](const auto& mechanism) {
                           return mechanism.param == AccessMechanism::kUserfault ? "userfault" : "mprotect";
                         });

}  // namespace
}  // namespace multigrain::hlrc
