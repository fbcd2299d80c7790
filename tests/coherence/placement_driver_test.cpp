// These tests run the driver of placed pages with real faults, messages and mappings, several nodes in one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "coherence/placement/driver.h"
#include "driver_nodes.h"
#include "placement/policies.h"
#include "profile/this_thread.h"

namespace multigrain::placement {
namespace {

constexpr uint64_t kRegionSize = uint64_t{16} << 20;
constexpr size_t kPageSize = 4096;

struct TestNode : driver_nodes::NodeMemory {
  std::thread service;
  ProcessorProfile profile;  // of the service thread
  std::unique_ptr<Driver> driver;
};

// Page p is at home at node p mod nodes. Pages from 64 on are pinned to local memory, from 128 on to global memory.
class Homes final : public driver_nodes::RunsOfHomes {
 public:
  explicit Homes(unsigned nodes) : RunsOfHomes(nodes, 1) {}
  Pin pin_of(PageId page) override {
    return page.value < 64 ? Pin::kNone : page.value < 128 ? Pin::kLocal : Pin::kGlobal;
  }
};

class Machine : public driver_nodes::DriverNodes<TestNode> {
 public:
  void write(uint64_t n, uint64_t page, uint64_t index, uint64_t value) {
    DriverNodes::write(static_cast<unsigned>(n), page, index, value);
  }
  uint64_t read(uint64_t n, uint64_t page, uint64_t index) {
    return DriverNodes::read(static_cast<unsigned>(n), page, index);
  }

  // Where pages in global memory are remote, nodes cannot map each other's frames.
  enum class Global : uint8_t { kMapped, kRemote };
  Machine(unsigned nodes, AccessMechanism access, const std::string& policy, Global global = Global::kMapped)
      : DriverNodes(nodes, access, kPageSize, kRegionSize), homes_(nodes) {
    for (unsigned n = 0; n < nodes && global == Global::kMapped; ++n) frames_.push_back(node(n).region->frames_fd());
    for (unsigned n = 0; n < nodes; ++n) {
      auto driver = Driver::create(services(n), policy);
      EXPECT_TRUE(driver) << driver.error().message;
      node(n).driver = std::move(*driver);
    }
    for (unsigned n = 0; n < nodes; ++n)
      node(n).service = std::thread([this, &node = node(n)] {
        set_this_profile(node.profile);
        while (!stopping_.load()) {
          node.memory->serve();
          node.driver->serve();
        }
      });
    set_this_profile(profile_);
    profile_.start();
  }
  ~Machine() {
    profile_.stop();
    stopping_ = true;
    for (unsigned n = 0; n < nodes(); ++n) node(n).memory->wake_service();
    for (unsigned n = 0; n < nodes(); ++n) node(n).service.join();
  }

  [[nodiscard]] NodeServices services(unsigned n) {
    TestNode& each = node(n);
    NodeServices services{*each.memory, *each.region, *each.rights, homes_, WaitPolicy{20'000}};
    services.frames_of_nodes = frames_;
    return services;
  }
  // Returns how often this happened on the test's thread and on the service threads.
  [[nodiscard]] uint64_t counted(Counter counter) const {
    uint64_t sum = 0;
    ProfileSnapshot snapshot;
    const auto add = [&](const ProcessorProfile& profile) {
      profile.snapshot(snapshot);
      sum += snapshot.counters[static_cast<size_t>(counter)];
    };
    add(profile_);
    for (unsigned n = 0; n < nodes(); ++n) add(node(n).profile);
    return sum;
  }
  [[nodiscard]] uint64_t in_frame(unsigned n, uint64_t page, uint64_t index) const {
    uint64_t value = 0;
    std::memcpy(&value, node(n).region->alias(PageId(page)) + index * sizeof value, sizeof value);
    return value;
  }
  [[nodiscard]] bool has_frame(unsigned n, uint64_t page) const {
    return node(n).region->next_resident(PageId(page), 1).has_value();
  }

 private:
  Homes homes_;
  std::vector<int> frames_;
  ProcessorProfile profile_;
  std::atomic<bool> stopping_{false};
};

class PlacementDriver : public testing::TestWithParam<AccessMechanism> {};

TEST_P(PlacementDriver, UnderALocalPolicyPagesAreCopiedAndMoved) {
  Machine machine(3, GetParam(), "always-migrate");
  for (uint64_t i = 1; i <= 30; ++i) {
    machine.write(i % 3, 1, 5, i);
    for (unsigned n = 0; n < 3; ++n) ASSERT_EQ(machine.read(n, 1, 5), i) << "node " << n;
  }
  EXPECT_EQ(machine.counted(Counter::kGlobalMaps), 0u);
  EXPECT_EQ(machine.counted(Counter::kDecidedGlobal), 0u);
  EXPECT_GE(machine.counted(Counter::kFlushes), 29u * 2);
  EXPECT_GE(machine.counted(Counter::kSyncs), 20u);
}

TEST_P(PlacementDriver, AGlobalPageIsTheHomesFrameAndFaultsOnceANode) {
  Machine machine(3, GetParam(), "global");
  for (unsigned n = 0; n < 3; ++n) machine.write(n, 1, n, 10 + n);
  const uint64_t faults = machine.counted(Counter::kWriteFaults) + machine.counted(Counter::kReadFaults);
  EXPECT_EQ(faults, 3u);
  for (uint64_t i = 0; i < 1000; ++i) {
    machine.write(i % 3, 1, i % 500, i);
    ASSERT_EQ(machine.read((i + 1) % 3, 1, i % 500), i);
    ASSERT_EQ(machine.in_frame(1, 1, i % 500), i);
  }
  EXPECT_EQ(machine.counted(Counter::kWriteFaults) + machine.counted(Counter::kReadFaults), faults);
  EXPECT_EQ(machine.counted(Counter::kGlobalMaps), 2u);
  EXPECT_EQ(machine.counted(Counter::kPagesFetched), 0u);
}

TEST_P(PlacementDriver, AnUnusualMixOfNeighboursKeepsEachPageWhatItIs) {
  Machine machine(2, GetParam(), "ace:invalidations=2");
  // Every other page goes to and fro until it is global; its neighbours stay with node 0.
  for (uint64_t page = 0; page < 40; ++page) machine.write(0, page, 0, page);
  for (uint64_t round = 0; round < 6; ++round)
    for (uint64_t page = 0; page < 40; page += 2) machine.write(round % 2, page, 1 + round % 2, 100 * round + page);
  EXPECT_GT(machine.counted(Counter::kBecameGlobalWritable), 0u);
  for (uint64_t page = 0; page < 40; ++page) {
    for (unsigned n = 0; n < 2; ++n) {
      ASSERT_EQ(machine.read(n, page, 0), page) << page;
      if (page % 2 != 0) continue;
      ASSERT_EQ(machine.read(n, page, 1), 400 + page);
      ASSERT_EQ(machine.read(n, page, 2), 500 + page);
    }
  }
}

TEST_P(PlacementDriver, AceFreezesAPageThatNodesPassToAndFro) {
  Machine machine(2, GetParam(), "ace");
  for (uint64_t i = 0; i < 40; ++i) {
    machine.write(i % 2, 2, 0, i);
    ASSERT_EQ(machine.read(1 - i % 2, 2, 0), i);
  }
  EXPECT_EQ(machine.counted(Counter::kBecameGlobalWritable), 2u);
  const uint64_t decisions = machine.counted(Counter::kDecidedLocal) + machine.counted(Counter::kDecidedGlobal);
  for (uint64_t i = 0; i < 40; ++i) machine.write(i % 2, 2, 0, i);
  EXPECT_EQ(machine.counted(Counter::kDecidedLocal) + machine.counted(Counter::kDecidedGlobal), decisions);
}

TEST_P(PlacementDriver, AThawedPageAsksThePolicyAgain) {
  // Frozen by the first write from elsewhere within an hour of the one before, and thawed every 1 ms.
  Machine machine(2, GetParam(), "platinum:t1=3600000000000:t2=1000000");
  machine.write(0, 3, 0, 1);
  machine.write(1, 3, 0, 2);
  for (uint64_t i = 0; i < 5; ++i) {
    machine.write(0, 3, 0, 10 + i);
    machine.write(1, 3, 1, 20 + i);
    ASSERT_EQ(machine.read(1, 3, 0), 10 + i);
    ASSERT_EQ(machine.read(0, 3, 1), 20 + i);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (unsigned n = 0; n < 2; ++n) machine.node(n).driver->catch_up();
  }
  EXPECT_GE(machine.counted(Counter::kThaws), 2u);
  EXPECT_GE(machine.counted(Counter::kUnmaps), 2u);
  EXPECT_EQ(machine.read(0, 3, 0), 14u);
  EXPECT_EQ(machine.read(0, 3, 1), 24u);
}

TEST_P(PlacementDriver, ThePolicyIsNotAskedAboutPinnedPages) {
  Machine machine(2, GetParam(), "ace:invalidations=1");
  for (uint64_t i = 0; i < 20; ++i) machine.write(i % 2, 65, 0, i);  // local
  EXPECT_EQ(machine.counted(Counter::kGlobalMaps), 0u);
  for (uint64_t i = 0; i < 20; ++i) machine.write(i % 2, 129, 0, i);  // global
  EXPECT_EQ(machine.counted(Counter::kGlobalMaps), 1u);
  EXPECT_EQ(machine.counted(Counter::kDecidedLocal) + machine.counted(Counter::kDecidedGlobal), 0u);
  EXPECT_EQ(machine.counted(Counter::kRequestsPinned), 20u + 2u);
  for (unsigned n = 0; n < 2; ++n) {
    EXPECT_EQ(machine.read(n, 65, 0), 19u);
    EXPECT_EQ(machine.read(n, 129, 0), 19u);
  }
}

TEST_P(PlacementDriver, NothingIsSentOfAPageThatNobodyHasWritten) {
  Machine machine(2, GetParam(), "always-migrate");
  EXPECT_EQ(machine.read(1, 4, 7), 0u);
  EXPECT_FALSE(machine.has_frame(0, 4));
  machine.write(1, 4, 7, 5);
  // The heap asks the home which pages may hold something.
  EXPECT_TRUE(machine.has_frame(0, 4));
  EXPECT_EQ(machine.counted(Counter::kZeroFills), 1u);
  EXPECT_EQ(machine.counted(Counter::kPagesFetched), 0u);
  EXPECT_EQ(machine.read(0, 4, 7), 5u);
  EXPECT_EQ(machine.counted(Counter::kPagesFetched), 1u);
}

TEST_P(PlacementDriver, ANodesFrameIsFilledWithWhatItReadsFromAfar) {
  Machine machine(2, GetParam(), "global");
  machine.write(0, 0, 9, 77);
  EXPECT_EQ(machine.read(1, 0, 9), 77u);
  EXPECT_EQ(machine.in_frame(1, 0, 9), 0u);
  machine.node(1).driver->fill_frame(PageId(0));
  EXPECT_EQ(machine.in_frame(1, 0, 9), 77u);
}

// Threads of all nodes count in words of a few pages, so that pages are asked for, taken, frozen and thawed at once.
TEST_P(PlacementDriver, NoAtomicAdditionIsLostUnderAnyPolicy) {
  constexpr unsigned kNodes = 3, kThreads = 2, kPages = 3, kAdditions = 60;
  for (const std::string policy :
       {"ace:invalidations=6", "platinum:t1=100000:t2=1000000", "always-migrate", "first-touch"}) {
    Machine machine(kNodes, GetParam(), policy);
    std::array<ProcessorProfile, kNodes * kThreads> profiles;
    std::vector<std::thread> threads;
    std::atomic<unsigned> running{kNodes * kThreads};
    for (unsigned t = 0; t < kNodes * kThreads; ++t)
      threads.emplace_back([&, t] {
        set_this_profile(profiles[t]);
        const unsigned n = t / kThreads;
        for (unsigned i = 0; i < kAdditions; ++i) {
          auto* const words =
              reinterpret_cast<std::atomic<uint64_t>*>(machine.node(n).region->view(PageId((i + t) % kPages)));
          words[i % 4].fetch_add(1);
        }
        --running;
      });
    while (running != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (unsigned n = 0; n < kNodes; ++n) machine.node(n).driver->catch_up();
    }
    for (std::thread& thread : threads) thread.join();
    uint64_t sum = 0;
    for (unsigned page = 0; page < kPages; ++page)
      for (unsigned word = 0; word < 4; ++word) sum += machine.read(0, page, word);
    EXPECT_EQ(sum, uint64_t{kNodes} * kThreads * kAdditions) << policy;
  }
}

TEST_P(PlacementDriver, StoreBufferingNeverShowsTwoOldValues) {
  constexpr uint64_t kRounds = 60;
  for (const std::string policy : {"ace:invalidations=20", "always-migrate", "global"}) {
    Machine machine(2, GetParam(), policy);
    std::array<ProcessorProfile, 2> profiles;
    std::array<std::vector<uint64_t>, 2> seen{std::vector<uint64_t>(kRounds), std::vector<uint64_t>(kRounds)};
    std::barrier meet(2);
    std::vector<std::thread> threads;
    for (unsigned n = 0; n < 2; ++n)
      threads.emplace_back([&, n] {
        set_this_profile(profiles[n]);
        const auto word = [&](uint64_t page) {
          return reinterpret_cast<std::atomic<uint64_t>*>(machine.node(n).region->view(PageId(page)));
        };
        for (uint64_t i = 0; i < kRounds; ++i) {
          meet.arrive_and_wait();
          word(n)->store(i + 1);
          seen[n][i] = word(1 - n)->load();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (uint64_t i = 0; i < kRounds; ++i)
      ASSERT_TRUE(seen[0][i] == i + 1 || seen[1][i] == i + 1) << policy << ", round " << i;
  }
}

// --- Remote references, made by the test in the place of instructions

TEST_P(PlacementDriver, AReferenceReadsAndWritesAnyBytesWhereThePageIs) {
  Machine machine(2, GetParam(), "global", Machine::Global::kRemote);
  Driver& away = *machine.node(1).driver;
  std::vector<std::byte> model(256);
  for (uint64_t at = 0; at < 64; ++at)
    for (const size_t size : {1, 2, 3, 4, 7, 8, 10, 16, 31, 32, 64, 100}) {
      std::vector<std::byte> bytes(size);
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(at * 7 + size + static_cast<size_t>(&byte - bytes.data()));
      ASSERT_TRUE(away.store(PageId(0), at, bytes));
      std::ranges::copy(bytes, model.begin() + static_cast<ptrdiff_t>(at));
      std::vector<std::byte> back(size + 20);
      ASSERT_TRUE(away.load(PageId(0), at, back));
      ASSERT_TRUE(std::equal(back.begin(), back.end(), model.begin() + static_cast<ptrdiff_t>(at)))
          << at << ", " << size;
      ASSERT_EQ(std::memcmp(machine.node(0).region->alias(PageId(0)), model.data(), model.size()), 0);
    }
  EXPECT_TRUE(away.is_remote(PageId(0)));
  EXPECT_EQ(away.remote_pages()[0], 1);
  EXPECT_EQ(away.remote_pages()[1], 0);
  EXPECT_EQ(machine.node(0).driver->remote_pages()[0], 0);
  EXPECT_EQ(machine.counted(Counter::kRemoteStores), 64u * 12);
  EXPECT_EQ(machine.counted(Counter::kRemoteLoads), 64u * 12);
  EXPECT_EQ(machine.counted(Counter::kRemoteAtomics), 0u);
  uint64_t word = 0;
  ASSERT_TRUE(machine.node(0).driver->load(PageId(0), 0, std::as_writable_bytes(std::span(&word, 1))));
  ASSERT_TRUE(away.compare_and_swap(PageId(0), 0, word, 1));
  EXPECT_EQ(machine.counted(Counter::kRemoteLoads), 64u * 12) << "what the home does in its own memory is not remote";
  EXPECT_EQ(machine.counted(Counter::kRemoteAtomics), 1u);
  EXPECT_FALSE(machine.node(0).driver->is_remote(PageId(0)));
  EXPECT_EQ(machine.counted(Counter::kGlobalMaps), 0u);
  EXPECT_EQ(machine.counted(Counter::kPagesFetched), 0u);
}

TEST_P(PlacementDriver, AReferenceToAPageThatIsHereIsMadeHere) {
  Machine machine(2, GetParam(), "always-migrate", Machine::Global::kRemote);
  Driver& away = *machine.node(1).driver;
  machine.write(0, 0, 5, 17);
  uint64_t word = 0;
  ASSERT_TRUE(away.load(PageId(0), 40, std::as_writable_bytes(std::span(&word, 1))));
  EXPECT_EQ(word, 17u);
  EXPECT_EQ(machine.counted(Counter::kPagesFetched), 1u);
  ASSERT_TRUE(away.compare_and_swap(PageId(0), 40, word, 18));
  EXPECT_EQ(word, 17u);
  EXPECT_EQ(machine.read(1, 0, 5), 18u);
  EXPECT_EQ(machine.in_frame(0, 0, 5), 17u);
  EXPECT_EQ(machine.read(0, 0, 5), 18u);
}

TEST_P(PlacementDriver, ARemotePageFillsTheFrame) {
  Machine machine(2, GetParam(), "global", Machine::Global::kRemote);
  machine.write(0, 0, 9, 77);
  uint64_t word = 0;
  Driver& away = *machine.node(1).driver;
  ASSERT_TRUE(away.load(PageId(0), 72, std::as_writable_bytes(std::span(&word, 1))));
  EXPECT_EQ(word, 77u);
  EXPECT_EQ(machine.in_frame(1, 0, 9), 0u);
  away.fill_frame(PageId(0));
  EXPECT_EQ(machine.in_frame(1, 0, 9), 77u);
}

// Pages come and go between global memory, where they are remote, and nodes, while all threads add to their words.
TEST_P(PlacementDriver, NoAdditionByReferenceIsLostUnderAnyPolicy) {
  constexpr unsigned kNodes = 3, kThreads = 2, kPages = 3, kAdditions = 60;
  for (const std::string policy : {"ace:invalidations=6", "platinum:t1=100000:t2=1000000", "global", "first-touch"}) {
    Machine machine(kNodes, GetParam(), policy, Machine::Global::kRemote);
    std::array<ProcessorProfile, kNodes * kThreads> profiles;
    std::vector<std::thread> threads;
    std::atomic<unsigned> running{kNodes * kThreads};
    for (unsigned t = 0; t < kNodes * kThreads; ++t)
      threads.emplace_back([&, t] {
        set_this_profile(profiles[t]);
        Driver& driver = *machine.node(t / kThreads).driver;
        for (unsigned i = 0; i < kAdditions; ++i) {
          const PageId page((i + t) % kPages);
          const uint64_t offset = i % 4 * sizeof(uint64_t);
          uint64_t seen = 0;
          EXPECT_TRUE(driver.load(page, offset, std::as_writable_bytes(std::span(&seen, 1))));
          for (uint64_t found = seen;; seen = found) {
            EXPECT_TRUE(driver.compare_and_swap(page, offset, found, seen + 1));
            if (found == seen) break;
          }
        }
        --running;
      });
    while (running != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (unsigned n = 0; n < kNodes; ++n) machine.node(n).driver->catch_up();
    }
    for (std::thread& thread : threads) thread.join();
    uint64_t sum = 0;
    for (unsigned page = 0; page < kPages; ++page)
      for (unsigned word = 0; word < 4; ++word) {
        uint64_t value = 0;
        EXPECT_TRUE(machine.node(0).driver->load(PageId(page), word * sizeof value,
                                                 std::as_writable_bytes(std::span(&value, 1))));
        sum += value;
      }
    EXPECT_EQ(sum, uint64_t{kNodes} * kThreads * kAdditions) << policy;
  }
}

INSTANTIATE_TEST_SUITE_P(Access, PlacementDriver,
                         testing::Values(AccessMechanism::kUserfault, AccessMechanism::kMprotect),
                         [](const auto& mechanism) {
                           return mechanism.param == AccessMechanism::kUserfault ? "Userfault" : "Mprotect";
                         });

std::string message(const Result<std::unique_ptr<Driver>>& driver) {
  return driver ? "made" : driver.error().message;
}

TEST(PlacementDriverErrors, APolicyThatARunCannotAskIsRefused) {
  Machine machine(2, AccessMechanism::kMprotect, "ace");
  const auto message_of = [&](const char* policy) { return message(Driver::create(machine.services(0), policy)); };
  EXPECT_THAT(message_of("acme"), testing::HasSubstr("there is no policy 'acme'; there are ace, "));
  EXPECT_THAT(message_of("ace:t1=3"), testing::HasSubstr("has no parameter 't1'; it has invalidations"));
  EXPECT_THAT(message_of("delay"), testing::HasSubstr("counts references"));
}

}  // namespace
}  // namespace multigrain::placement
