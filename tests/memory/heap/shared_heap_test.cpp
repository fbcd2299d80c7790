// These test the heaps of several nodes on the sim fabric: one thread delivers messages in random order from a seed.
#include "memory/heap/shared_heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "memory/layout.h"
#include "support/sim_fabric.h"

namespace multigrain {
namespace {

using ::testing::HasSubstr;

constexpr Placement kInterleaved{};
constexpr Placement kBlocked{HomePolicy::kBlocked, NodeId(0)};
constexpr Placement kFirstTouch{HomePolicy::kFirstTouch, NodeId(0)};
Placement on_node(uint16_t node) {
  return {HomePolicy::kNode, NodeId(node)};
}

// Nothing touches this memory: the heap does its bookkeeping elsewhere.
std::byte* const kBase = reinterpret_cast<std::byte*>(uint64_t{1} << 45);

class Machine {
 public:
  // `claims` is the number of entries of each node's table of first-touch pages. If it is small, many pages have no
  // room there.
  explicit Machine(unsigned nodes, uint64_t seed = 1, uint64_t region_size = uint64_t{1} << 30, size_t page_size = 4096,
                   uint64_t claims = 1000)
      : page_size_(page_size), network({.nodes = nodes, .seed = seed, .poll = SimNetwork::PollMode::kRandomStep}) {
    for (uint16_t node = 0; node < nodes; ++node) {
      heaps_.push_back(std::make_unique<SharedHeap>(network.node(NodeId(node)), WaitPolicy{}, kBase, region_size,
                                                    page_size, nullptr,
                                                    HomeClaims::TableLocation{.offset = 4096, .entries = claims}));
    }
  }

  SharedHeap& heap(unsigned node) { return *heaps_[node]; }
  [[nodiscard]] unsigned nodes() const { return network.nodes(); }
  [[nodiscard]] PageId page_of(const void* address) const {
    return PageId(static_cast<uint64_t>(static_cast<const std::byte*>(address) - kBase) / page_size_);
  }

 private:
  size_t page_size_;

 public:
  SimNetwork network;

 private:
  std::vector<std::unique_ptr<SharedHeap>> heaps_;
};

class SharedHeapRandomTest : public ::testing::TestWithParam<int> {};

TEST_P(SharedHeapRandomTest, NodesAgreeAndBlocksDoNotOverlap) {
  std::mt19937_64 random(static_cast<uint64_t>(GetParam()));
  const unsigned nodes = 1 + static_cast<unsigned>(random() % 5);
  const size_t page_size = size_t{4096} << random() % 3;
  const uint64_t region_size = uint64_t{1} << (random() % 2 == 0 ? 22 : 34);
  const uint64_t claims[] = {0, 5, 64, 7000};
  Machine machine(nodes, random(), region_size, page_size, claims[random() % 4]);
  struct Block {
    uint64_t size;
    bool own_pages;
  };
  std::map<uint64_t, Block> in_use;
  std::unordered_map<uint64_t, NodeId> home_ever;
  for (int step = 0; step < 1500; ++step) {
    SharedHeap& heap = machine.heap(static_cast<unsigned>(random() % nodes));
    const bool grow = random() % 10 < (step / 200 % 2 == 0 ? 7u : 3u);
    if (grow || in_use.empty()) {
      const uint64_t size = random() % 3 == 0 ? random() % (20 * page_size) : random() % 300;
      const uint64_t alignment = random() % 3 == 0 ? uint64_t{1} << random() % 17 : 0;
      const Placement placements[] = {kInterleaved, kBlocked, kFirstTouch,
                                      on_node(static_cast<uint16_t>(random() % nodes))};
      const Placement placement = placements[random() % 4];
      const auto block = heap.allocate(size, alignment, placement);
      if (!block) {
        ASSERT_EQ(block.error().code, ENOMEM);
        ASSERT_LT(region_size, uint64_t{1} << 30) << "the large region has room";
        continue;
      }
      const uint64_t address = reinterpret_cast<uint64_t>(block->address);
      const uint64_t wanted_alignment = alignment != 0 ? alignment : size >= page_size ? page_size : 16;
      ASSERT_EQ(address % wanted_alignment, 0u);
      ASSERT_GE(block->size, std::max<uint64_t>(size, 1));
      const bool own_pages = size >= page_size;
      // This is the memory that the block may not share with a neighbour: whole pages for a block that has its own.
      const uint64_t start = own_pages ? address / page_size * page_size : address;
      const uint64_t end =
          own_pages ? (address + block->size + page_size - 1) / page_size * page_size : address + block->size;
      const auto above = in_use.lower_bound(start);
      if (above != in_use.end()) {
        ASSERT_LE(end, above->second.own_pages ? above->first / page_size * page_size : above->first);
      }
      if (above != in_use.begin()) {
        ASSERT_LE(std::prev(above)->first + std::prev(above)->second.size, start);
      }
      in_use[address] = {block->size, own_pages};

      const uint64_t first = machine.page_of(block->address).value;
      const uint64_t last = machine.page_of(static_cast<std::byte*>(block->address) + block->size - 1).value;
      for (uint64_t page = first; page <= last; ++page) {
        std::optional<NodeId> home;
        if (placement.policy == HomePolicy::kFirstTouch) {
          home = machine.heap(static_cast<unsigned>(random() % nodes)).claim_home(PageId(page));
          for (unsigned node = 0; node < nodes; ++node) ASSERT_EQ(machine.heap(node).claim_home(PageId(page)), home);
        }
        for (unsigned node = 0; node < nodes; ++node) {
          const std::optional<NodeId> here = machine.heap(node).home_of(PageId(page));
          ASSERT_TRUE(here) << "node " << node << " does not know the extent of page " << page;
          if (!home) home = here;
          ASSERT_EQ(here, home) << "page " << page << " on node " << node;
        }
        ASSERT_EQ(home_ever.emplace(page, *home).first->second, *home) << "the home of page " << page << " changed";
        if (placement.policy == HomePolicy::kNode) {
          ASSERT_EQ(home, placement.node);
        }
        if (placement.policy == HomePolicy::kBlocked && own_pages) {
          ASSERT_EQ(home->value, (page - first) * nodes / (last - first + 1));
        }
      }
    } else {
      auto victim = in_use.lower_bound(reinterpret_cast<uint64_t>(kBase) + random() % region_size);
      if (victim == in_use.end()) victim = in_use.begin();
      void* const address = reinterpret_cast<void*>(victim->first);
      ASSERT_EQ(heap.usable_size(address), victim->second.size);
      ASSERT_TRUE(heap.free(address));
      // The block is freed again, perhaps by another node.
      const auto twice = machine.heap(static_cast<unsigned>(random() % nodes)).free(address);
      ASSERT_FALSE(twice);
      ASSERT_EQ(twice.error().code, EINVAL);
      in_use.erase(victim);
    }
  }
  machine.network.run();
  for (uint16_t node = 0; node < nodes; ++node) EXPECT_EQ(machine.network.node(NodeId(node)).pollers(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SharedHeapRandomTest, ::testing::Range(1, 21));

TEST(SharedHeapTest, OneNodeSendsNothing) {
  // A message to itself would end the process, and there is no other node.
  Machine machine(1);
  SharedHeap& heap = machine.heap(0);
  for (const Placement& placement : {kInterleaved, kBlocked, kFirstTouch, on_node(0)}) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{1} << 20}) {
      const auto block = heap.allocate(size, 0, placement);
      ASSERT_TRUE(block) << block.error().message;
      EXPECT_EQ(heap.claim_home(machine.page_of(block->address)), NodeId(0));
      EXPECT_TRUE(heap.free(block->address));
    }
  }
}

TEST(SharedHeapTest, ReplyWaitsForTheSlowestNode) {
  SimNetwork network({.nodes = 3, .poll = SimNetwork::PollMode::kManual});
  std::vector<std::unique_ptr<SharedHeap>> heaps;
  for (uint16_t node = 0; node < 3; ++node) {
    heaps.push_back(std::make_unique<SharedHeap>(network.node(NodeId(node)), WaitPolicy{}, kBase, uint64_t{1} << 30,
                                                 4096, nullptr,
                                                 HomeClaims::TableLocation{.offset = 4096, .entries = 1000}));
  }
  // The test makes node 1's request by hand, for a call that node 1 has not made. The reply would end the process, and
  // is not delivered.
  MessageHeader request;
  request.type = heap_message::kAllocate;
  request.word = {1, 1, 0};
  network.node(NodeId(1)).Fabric::send(NodeId(0), request, SendContext::kOrdinary);
  ASSERT_TRUE(network.deliver(NodeId(1), NodeId(0)));
  ASSERT_TRUE(network.deliver(NodeId(0), NodeId(1)));  // the extent
  ASSERT_TRUE(network.deliver(NodeId(1), NodeId(0)));  // known
  EXPECT_FALSE(heaps[2]->find(PageId(0)));
  EXPECT_EQ(network.pending_count(), 1u) << "the extent for node 2, and no reply";
  ASSERT_TRUE(network.deliver(NodeId(0), NodeId(2)));
  EXPECT_TRUE(heaps[2]->find(PageId(0)));
  ASSERT_TRUE(network.deliver(NodeId(2), NodeId(0)));
  ASSERT_EQ(network.pending_count(), 1u);
  EXPECT_EQ(network.pending().front()->header.type, heap_message::kReply);
  EXPECT_EQ(network.pending().front()->header.flags, 1);
  EXPECT_EQ(network.pending().front()->to, NodeId(1));
}

// The table at the arbiter has room for all pages, for some, or for none.
TEST(SharedHeapTest, FirstTouchGoesToTheFirstThatAsks) {
  for (const uint64_t claims : {1000u, 7u, 1u, 0u}) {
    Machine machine(3, 1, uint64_t{1} << 30, 4096, claims);
    const auto block = machine.heap(1).allocate(80 * 4096, 0, kFirstTouch);
    ASSERT_TRUE(block);
    const uint64_t first = machine.page_of(block->address).value;
    for (uint64_t i = 0; i < 80; ++i) {
      const PageId page(first + i);
      for (unsigned node = 0; node < 3; ++node) {
        EXPECT_EQ(machine.heap(node).home_of(page), std::nullopt);
        EXPECT_EQ(machine.heap(node).ask_home(page), std::nullopt) << "asking does not claim";
      }
      const auto toucher = static_cast<uint16_t>(i % 3);
      EXPECT_EQ(machine.heap(toucher).claim_home(page), NodeId(toucher));
      for (unsigned node = 0; node < 3; ++node) {
        EXPECT_EQ(machine.heap(node).ask_home(page), NodeId(toucher));
        EXPECT_EQ(machine.heap(node).claim_home(page), NodeId(toucher));
        EXPECT_EQ(machine.heap(node).home_of(page), NodeId(toucher));
      }
    }
  }
}

// Claims are remote atomics: nothing runs on the arbiter, nor anywhere else.
TEST(SharedHeapTest, ClaimsSendNoMessages) {
  Machine machine(3);
  const auto block = machine.heap(1).allocate(90 * 4096, 0, kFirstTouch);
  ASSERT_TRUE(block);
  machine.network.run();
  const uint64_t first = machine.page_of(block->address).value;
  for (unsigned i = 0; i < 90; ++i) {
    for (unsigned node = 0; node < 3; ++node) {
      EXPECT_EQ(machine.heap((node + i) % 3).claim_home(PageId(first + i)), NodeId(static_cast<uint16_t>(i % 3)));
      EXPECT_EQ(machine.heap(node).ask_home(PageId(first + i)), NodeId(static_cast<uint16_t>(i % 3)));
      ASSERT_EQ(machine.network.pending_count(), 0u);
    }
  }
}

TEST(SharedHeapDeathTest, AHomeThatDoesNotExistEndsTheRun) {
  Machine machine(3);
  const auto block = machine.heap(0).allocate(3 * 4096, 0, kFirstTouch);
  ASSERT_TRUE(block);
  machine.network.run();
  const uint64_t page = machine.page_of(block->address).value;
  // This damages entries of the table at the arbiter.
  for (uint64_t i = 0; i < 3; ++i) {
    const NodeId arbiter(static_cast<uint16_t>((page + i) % 3));
    machine.network.node(NodeId(0)).fetch_and_set(arbiter, SegmentId::kWords, 4096 + (page + i) / 3 * 8 % 8000,
                                                  (page + i) << 11 | 4);
    EXPECT_DEATH(machine.heap(0).claim_home(PageId(page + i)), "a page's home is a node that does not exist");
    EXPECT_DEATH(machine.heap(1).ask_home(PageId(page + i)), "a page's home is a node that does not exist");
  }
}

TEST(SharedHeapTest, PagesOutsideOfExtentsHaveNoHome) {
  Machine machine(2);
  for (unsigned node = 0; node < 2; ++node) {
    for (uint64_t page : {uint64_t{0}, uint64_t{1} << 17, ~uint64_t{0}}) {
      EXPECT_EQ(machine.heap(node).home_of(PageId(page)), std::nullopt);
      EXPECT_EQ(machine.heap(node).claim_home(PageId(page)), std::nullopt);
      EXPECT_EQ(machine.heap(node).ask_home(PageId(page)), std::nullopt);
    }
  }
}

TEST(SharedHeapTest, RefusesBadRequests) {
  Machine machine(2, 1, uint64_t{1} << 22);
  SharedHeap& heap = machine.heap(1);
  const auto error = [&](size_t size, size_t alignment, const Placement& placement) {
    const auto block = heap.allocate(size, alignment, placement);
    return block ? HeapError{{"accepted"}, 0} : block.error();
  };
  EXPECT_EQ(error(8, 48, kInterleaved).code, EINVAL);
  EXPECT_THAT(error(8, 48, kInterleaved).message, HasSubstr("48 bytes was asked for; it must be a power of two up to"));
  EXPECT_EQ(error(8, uint64_t{1} << 23, kInterleaved).code, EINVAL);
  EXPECT_EQ(error(8, 0, on_node(2)).code, EINVAL);
  EXPECT_THAT(error(8, 0, on_node(2)).message, HasSubstr("node 2 was asked for; the machine has nodes 0 to 1"));
  EXPECT_EQ(error((uint64_t{1} << 22) + 1, 0, kInterleaved).code, ENOMEM);
  EXPECT_EQ(error(~uint64_t{0}, 0, kInterleaved).code, ENOMEM);
  EXPECT_THAT(error(~uint64_t{0}, 0, kInterleaved).message, HasSubstr("MULTIGRAIN_REGION_SIZE"));
  EXPECT_TRUE(heap.allocate(uint64_t{1} << 20, 0, kInterleaved)) << "and goes on working";
}

// Memory of pages, of lines, and of blocks of each size is never mixed, however it is reused, and every node knows
// which is which.
TEST(SharedHeapTest, BlockSizesDoNotMix) {
  Machine machine(3);
  const Placement kinds[] = {kInterleaved,
                             {.grain = Grain::kLine},
                             {.grain = Grain::kLine, .block_size = 64},
                             {.grain = Grain::kLine, .block_size = 192},
                             {.grain = Grain::kLine, .block_size = 4096},
                             {.policy = HomePolicy::kBlocked, .grain = Grain::kLine, .block_size = 2048}};
  std::vector<void*> blocks;
  for (unsigned round = 0; round < 3; ++round) {
    for (const Placement& kind : kinds)
      for (unsigned node = 0; node < machine.nodes(); ++node)
        for (const size_t size : {size_t{64}, size_t{1000}, size_t{5000}, size_t{40000}}) {
          const auto block = machine.heap(node).allocate(size, 0, kind);
          ASSERT_TRUE(block);
          blocks.push_back(block->address);
          for (unsigned other = 0; other < machine.nodes(); ++other)
            for (const size_t at : {size_t{0}, size - 1}) {
              const PageId page = machine.page_of(static_cast<std::byte*>(block->address) + at);
              const auto extent = machine.heap(other).find(page);
              ASSERT_TRUE(extent);
              EXPECT_EQ(extent->placement.grain, kind.grain);
              EXPECT_EQ(extent->placement.block_size, kind.block_size);
            }
        }
    for (void* const block : blocks) ASSERT_TRUE(machine.heap(round % 3).free(block));
    blocks.clear();
  }
  for (const uint32_t wrong : {uint32_t{100}, uint32_t{8192}}) {
    const auto block = machine.heap(1).allocate(64, 0, {.grain = Grain::kLine, .block_size = wrong});
    ASSERT_FALSE(block);
    EXPECT_EQ(block.error().code, EINVAL);
  }
  EXPECT_FALSE(machine.heap(1).allocate(64, 0, {.block_size = 64})) << "pages have no blocks";
}

TEST(SharedHeapTest, UsedUpByEveryNodeAndUsableAgain) {
  Machine machine(3, 5, uint64_t{1} << 22);
  std::vector<void*> blocks;
  for (unsigned turn = 0;; ++turn) {
    const auto block = machine.heap(turn % 3).allocate(3 * 4096, 0, kInterleaved);
    if (!block) {
      EXPECT_EQ(block.error().code, ENOMEM);
      break;
    }
    blocks.push_back(block->address);
  }
  EXPECT_GE(blocks.size(), 1024u / 3 - 1);
  for (void* block : blocks) ASSERT_TRUE(machine.heap(2).free(block));
  // Small blocks need superblocks, for which no address space is left. Freed pages must do.
  const auto small = machine.heap(1).allocate(10, 0, kInterleaved);
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_TRUE(small->needs_clearing);
  EXPECT_TRUE(machine.heap(2).free(small->address));
}

TEST(SharedHeapTest, ForeignPointersAreErrors) {
  Machine machine(2);
  for (size_t size : {size_t{100}, size_t{10000}}) {
    const auto block = machine.heap(1).allocate(size, 0, kInterleaved);
    ASSERT_TRUE(block);
    auto* const start = static_cast<std::byte*>(block->address);
    int private_variable = 0;
    for (unsigned node = 0; node < 2; ++node) {
      for (const void* pointer :
           {static_cast<const void*>(start + 16), static_cast<const void*>(start + 4096),
            static_cast<const void*>(start + 1), static_cast<const void*>(&private_variable),
            static_cast<const void*>(kBase - 4096), static_cast<const void*>(kBase + (uint64_t{1} << 30)),
            static_cast<const void*>(kBase + (uint64_t{1} << 29)), static_cast<const void*>(nullptr)}) {
        const auto freed = machine.heap(node).free(pointer);
        ASSERT_FALSE(freed) << pointer;
        EXPECT_EQ(freed.error().code, EINVAL);
        EXPECT_THAT(freed.error().message, HasSubstr("is not the start of a block of shared memory in use"));
        EXPECT_FALSE(machine.heap(node).usable_size(pointer));
      }
    }
    EXPECT_TRUE(machine.heap(0).free(start));
  }
}

TEST(SharedHeapTest, SmallBlocksOfOneNodeCostFewMessages) {
  Machine machine(4);
  uint64_t waits = 0;
  const void* last = nullptr;
  for (int i = 0; i < 10000; ++i) {
    const auto block = machine.heap(3).allocate(64, 0, kInterleaved);
    ASSERT_TRUE(block);
    const Extent extent = *machine.heap(0).find(machine.page_of(block->address));
    EXPECT_EQ(extent.owner, 3);
    if (last == nullptr || !extent.contains(machine.page_of(last))) ++waits;
    last = block->address;
  }
  EXPECT_LE(waits, 10u) << "extents grow with the heap: 640 KB in 64 KiB, 64 KiB, 128 KiB, ...";
}

TEST(SharedHeapTest, RegionsBeyondMemoryAreOnlyAddresses) {
  if (layout::kMaxRegionSize < (uint64_t{16} << 40)) GTEST_SKIP() << "this build has small regions";
  Machine machine(2, 1, uint64_t{16} << 40);
  for (const Placement& placement : {kInterleaved, kBlocked, kFirstTouch, on_node(1)}) {
    const auto block = machine.heap(1).allocate(uint64_t{64} << 30, 0, placement);
    ASSERT_TRUE(block) << block.error().message;
    EXPECT_FALSE(block->needs_clearing);
    const PageId last = machine.page_of(static_cast<std::byte*>(block->address) + (uint64_t{64} << 30) - 1);
    EXPECT_TRUE(machine.heap(0).claim_home(last));
  }
}

// These are messages that another node could send if it were broken. Each ends the run with a sentence, and is never
// acted upon.
TEST(SharedHeapDeathTest, BadMessagesEndTheRun) {
  struct Case {
    MessageHeader header;
    NodeId to;
  };
  const uint64_t far = ~uint64_t{0};
  const Case cases[] = {
      {{heap_message::kAllocate, 9, 0, 0, {1, 1, 0}}, NodeId(0)},
      {{heap_message::kAllocate, 0, 3, 0, {1, 1, 0}}, NodeId(0)},
      {{heap_message::kAllocate, 0, 0, 0, {0, 1, 0}}, NodeId(0)},
      {{heap_message::kAllocate, 0, 0, 0, {1, 3, 0}}, NodeId(0)},
      {{heap_message::kAllocate, 0, 0, 0, {1, 2, 1}}, NodeId(0)},
      {{heap_message::kAllocate, 0, 0, 0, {1, 1, 2}}, NodeId(0)},
      {{heap_message::kAllocate, 0, 0, 0, {1, 1, 0}}, NodeId(2)},
      {{heap_message::kExtent, 0, 0, Extent::kNoOwner, {0, 1, 0}}, NodeId(0)},
      {{heap_message::kExtent, 0, 0, Extent::kNoOwner, {0, 1, 0}}, NodeId(2)},
      {{heap_message::kExtentKnown, 0, 0, 0, {1, 0, 0}}, NodeId(0)},
      {{heap_message::kFree, 0, 0, 0, {far, 0, 0}}, NodeId(0)},
      {{heap_message::kSizeOf, 0, 0, 0, {4096, 0, 0}}, NodeId(2)},
      {{heap_message::kHome, 1, 0, 0, {far, 0, 0}}, NodeId(0)},
      {{heap_message::kHome, 1, 0, 0, {1, 0, 0}}, NodeId(0)},
      {{heap_message::kReply, 1, 0, 0, {0, 0, 0}}, NodeId(0)},
      {{heap_message::kReply, 1, 0, 1u << 20, {0, 0, 0}}, NodeId(0)},
  };
  for (const Case& bad : cases) {
    EXPECT_DEATH(
        {
          Machine machine(3);
          machine.network.node(NodeId(1)).Fabric::send(bad.to, bad.header, SendContext::kOrdinary);
          machine.network.run();
        },
        "multigrain: node .*: heap message")
        << "type " << int{bad.header.type} << " flags " << int{bad.header.flags} << " to node " << bad.to.value;
  }
}

}  // namespace
}  // namespace multigrain
