// These tests run the MGS driver with real faults and real messages, several nodes in one process.
//
// Each node has its own region, at its own addresses, its own access rights, fabric and driver; its processors are
// threads. So the thread sanitizer sees all of the runtime's own accesses, and a test can put any schedule of threads
// on a page. Processors synchronise by the test's own means (atomics and std::barrier) around Driver::release().

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coherence/mgs/driver.h"
#include "driver_nodes.h"
#include "random_phases.h"

namespace multigrain::mgs {
namespace {

constexpr uint64_t kRegionSize = uint64_t{64} << 20;

struct TestNode : driver_nodes::NodeMemory {
  std::thread service;
  std::atomic<bool> stops{false};
  std::unique_ptr<Driver> driver;
};

struct Way {
  AccessMechanism access;
  bool reads_one_sided;
};

class Machine : public driver_nodes::DriverNodes<TestNode> {
 public:
  Machine(unsigned nodes, Way way, size_t page_size, unsigned prefetch = 0, unsigned run_of_homes = 1)
      : DriverNodes(nodes, way.access, page_size, kRegionSize), homes_(nodes, run_of_homes) {
    for (unsigned n = 0; n < nodes; ++n) {
      TestNode& each = node(n);
      auto driver = Driver::create({*each.memory, *each.region, *each.rights, homes_, WaitPolicy{20'000}},
                                   {.prefetch = prefetch, .reads_one_sided = way.reads_one_sided});
      EXPECT_TRUE(driver) << driver.error().message;
      each.driver = std::move(*driver);
    }
    for (unsigned n = 0; n < nodes; ++n) {
      node(n).service = std::thread([this, &node = node(n)] {
        while (!stopping_.load() && !node.stops.load()) node.memory->serve();
      });
    }
  }
  ~Machine() {
    stopping_ = true;
    for (unsigned n = 0; n < nodes(); ++n) node(n).memory->wake_service();
    for (unsigned n = 0; n < nodes(); ++n)
      if (node(n).service.joinable()) node(n).service.join();
  }
  // From now on no thread handles the messages of node `n`.
  void stop_service(unsigned n) {
    node(n).stops = true;
    node(n).memory->wake_service();
    node(n).service.join();
  }

  void release(unsigned n) { node(n).driver->release(); }
  [[nodiscard]] Page inspect(unsigned n, uint64_t page) { return node(n).driver->inspect(PageId(page)); }

 private:
  driver_nodes::RunsOfHomes homes_;
  std::atomic<bool> stopping_{false};
};

class MgsDriver : public testing::TestWithParam<Way> {};

TEST_P(MgsDriver, AWriteIsSeenAfterARelease) {
  Machine machine(3, GetParam(), 4096);
  for (uint64_t i = 1; i <= 50; ++i) {
    const auto writer = static_cast<unsigned>(i % 3);
    machine.write(writer, 1, 5, i);
    machine.release(writer);
    for (unsigned n = 0; n < 3; ++n) ASSERT_EQ(machine.read(n, 1, 5), i) << "node " << n;
  }
}

TEST_P(MgsDriver, ASoleWriterBecomesASingleWriterUntilAnotherComes) {
  Machine machine(3, GetParam(), 4096);
  machine.write(0, 1, 0, 1);
  machine.release(0);
  EXPECT_TRUE(machine.inspect(0, 1).client.single_writer);
  EXPECT_EQ(machine.inspect(1, 1).server.state, ServerState::kSwrite);
  machine.write(0, 1, 1, 2);
  machine.release(0);  // the release ignores the page
  EXPECT_EQ(machine.read(2, 1, 1), 2u);
  EXPECT_FALSE(machine.inspect(0, 1).client.single_writer);
  EXPECT_EQ(machine.inspect(1, 1).server.state, ServerState::kRead);
}

// The home's service thread is told to do nothing, and no other thread of the home polls.
TEST_P(MgsDriver, ACleanPageIsReadWithoutItsHome) {
  if (!GetParam().reads_one_sided) GTEST_SKIP() << "reads are messages";
  Machine machine(3, GetParam(), 4096, 8, 64);
  for (uint64_t page = 0; page < 16; ++page) machine.write(1, page, 3, page + 1);
  machine.release(1);
  // The home, node 0, is told of the first readers by message. Then it writes again, and they come again.
  for (uint64_t page = 0; page < 16; ++page) ASSERT_EQ(machine.read(2, page, 3), page + 1);
  for (uint64_t page = 0; page < 16; ++page) machine.write(0, page, 4, page + 2);
  machine.release(0);
  for (uint64_t page = 0; page < 16; ++page) {
    EXPECT_EQ(machine.inspect(0, page).server.state, ServerState::kRead);
    EXPECT_EQ(machine.inspect(2, page).client.state, PageState::kInv);
  }
  machine.stop_service(0);
  for (uint64_t page = 0; page < 16; ++page) {
    ASSERT_EQ(machine.read(2, page, 4), page + 2);
    ASSERT_EQ(machine.read(1, page, 4), page + 2);
  }
}

// Two processors of node 0 write their own words of one page and release, at their own pace. Whichever releases, what
// it wrote before must be visible to node 1 afterwards, even when the other's release took the page along and is still
// under way; node 1 keeps reading, so it always has a copy that could be stale.
TEST_P(MgsDriver, AReleaseCoversWhatAnotherProcessorsReleaseTookAlong) {
  constexpr unsigned kChanges = 300;
  Machine machine(3, GetParam(), 4096);
  std::array<std::atomic<uint64_t>, 2> released{};
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  for (unsigned w = 0; w < 2; ++w) {
    writers.emplace_back([&machine, &released, &done, w] {
      for (uint64_t i = 1; !done.load(); ++i) {
        machine.write(0, 2, 8 * w, i);
        machine.release(0);
        released[w].store(i);
      }
    });
  }
  uint64_t stale = 0;
  std::array<uint64_t, 2> seen{};
  for (unsigned changes = 0; changes < kChanges;) {
    for (unsigned w = 0; w < 2; ++w) {
      const uint64_t at_least = released[w].load();
      const uint64_t value = machine.read(1, 2, 8 * w);
      if (value < at_least) ++stale;
      changes += value != seen[w] ? 1 : 0;
      seen[w] = value;
    }
  }
  done = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(stale, 0u);
}

TEST_P(MgsDriver, RandomProgramsWithoutRacesReadWhatWasWritten) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    Machine machine(3, GetParam(), 4096);
    run_phases(machine, 3, 2, seed);
  }
}

TEST_P(MgsDriver, RandomProgramsOnWidePages) {
  Machine machine(2, GetParam(), 65536);
  run_phases(machine, 2, 2, 9);
}

// All processors go through the same pages in order, at the same time, so that each of them requests ahead pages that
// others are claiming, writing and giving away.
TEST_P(MgsDriver, WalksInOrderAreAskedForAhead) {
  constexpr unsigned kNodes = 3, kProcessors = 2, kAll = kNodes * kProcessors;
  constexpr uint64_t kPages = 192, kRounds = 6;
  Machine machine(kNodes, GetParam(), 4096, 16, 64);
  std::barrier meeting(kAll);
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < kAll; ++p) {
    threads.emplace_back([&, p] {
      const unsigned node = p / kProcessors;
      const auto page_of = [&](uint64_t i, uint64_t stride) { return i * stride % kPages; };
      for (uint64_t round = 1; round <= kRounds; ++round) {
        const uint64_t stride = round % 3 == 0 ? 5 : 1;  // 5 and 192 have no common factor
        for (uint64_t i = 0; i < kPages; ++i) machine.write(node, page_of(i, stride), p, round << 32 | i);
        machine.release(node);
        meeting.arrive_and_wait();
        for (uint64_t i = 0; i < kPages; ++i)
          for (unsigned q = 0; q < kAll; ++q)
            if (machine.read(node, page_of(i, stride), q) != (round << 32 | i)) ++wrong;
        meeting.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST_P(MgsDriver, OneProcessorANode) {
  Machine machine(4, GetParam(), 4096);
  run_phases(machine, 4, 1, 17);
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, MgsDriver,
                         testing::Values(Way{AccessMechanism::kUserfault, false},
                                         Way{AccessMechanism::kMprotect, false}, Way{AccessMechanism::kUserfault, true},
                                         Way{AccessMechanism::kMprotect, true}),
                         [](const auto& way) {
                           return std::string(way.param.access == AccessMechanism::kUserfault ? "userfault"
                                                                                              : "mprotect") +
                                  (way.param.reads_one_sided ? "_one_sided" : "");
                         });

}  // namespace
}  // namespace multigrain::mgs
