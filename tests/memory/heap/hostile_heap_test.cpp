// These test the shared heap among nodes that send anything.
#include "../../fabric/hostile.h"
#include "memory/heap/shared_heap.h"
#include "support/effort.h"

namespace multigrain::testing {
namespace {

constexpr unsigned kNodes = 3;
constexpr uint64_t kRegion = uint64_t{64} << 20;
constexpr size_t kPage = 4096;
std::byte* const kBase = reinterpret_cast<std::byte*>(uint64_t{1} << 44);  // never touched: addresses only

// This is a heap with blocks in it: of pages and small ones, freed and not.
struct Node {
  explicit Node(NodeId self) : fabric(self, kNodes), heap(fabric, policy, kBase, kRegion, kPage) {
    if (self == NodeId(0)) {
      learn_extents();
    } else {
      MessageHeader extent;
      extent.type = heap_message::kExtent;
      extent.extra = self.value;
      extent.word = {0, 256, 0};
      fabric.deliver(NodeId(0), extent);
      extent.flags = static_cast<uint8_t>(HomePolicy::kFirstTouch);
      extent.extra = Extent::kNoOwner;
      extent.word = {256, 4096, 1};
      fabric.deliver(NodeId(0), extent);
    }
  }
  // This node is the manager: other nodes ask for pages and acknowledge what they are told.
  void learn_extents() {
    MessageHeader request;
    request.type = heap_message::kAllocate;
    request.word = {16, 1, 0};
    fabric.deliver(NodeId(1), request);
    request.word = {64, 16, 1};
    fabric.deliver(NodeId(2), request);
    request.flags = static_cast<uint8_t>(HomePolicy::kFirstTouch);
    request.word = {300, 4, 0};
    fabric.deliver(NodeId(2), request);
  }
  WaitPolicy policy;
  HostileFabric fabric;
  SharedHeap heap;
};

MessageHeader plausible(std::mt19937_64& random) {
  MessageHeader header;
  header.type =
      static_cast<MessageType>(heap_message::kAllocate + random() % (heap_message::kEnd - heap_message::kAllocate));
  header.flags = static_cast<uint8_t>(random() % 4);
  header.small = static_cast<uint16_t>(random() % kNodes);
  header.extra = static_cast<uint32_t>(random() % 3);
  switch (header.type) {
    case heap_message::kAllocate:
      header.word = {1 + random() % 5000, uint64_t{1} << random() % 8, random() % 2};
      break;
    case heap_message::kExtent:
      header.word = {random() % 9000, 1 + random() % 5000, random() % 4};
      break;
    case heap_message::kExtentKnown:
      header.word = {1 + random() % 4, 0, 0};
      break;
    case heap_message::kFree:
    case heap_message::kSizeOf:
      header.word = {random() % (4000 * kPage) / (random() % 2 == 0 ? kPage : 16) * (random() % 2 == 0 ? kPage : 16), 0,
                     0};
      break;
    default:
      header.word = {random() % 9000, random() % 5000, 0};
  }
  return header;
}

void trial_of(NodeId self, std::mt19937_64& random, const std::function<void(MessageHeader&)>& change) {
  Node node(self);
  for (int i = 0; i < 60; ++i) {
    MessageHeader header = plausible(random);
    change(header);
    node.fabric.deliver(NodeId(static_cast<uint16_t>(random() % kNodes)), header);
  }
}

TEST(HostileHeap, TheManagerAcceptsOrEndsWithASentence) {
  const HostileCounts counts = run_trials(effort(300, 60), [](std::mt19937_64& random) {
    trial_of(NodeId(0), random, [&](MessageHeader& header) {
      if (random() % 4 == 0) damage(header, random);
    });
  });
  EXPECT_GT(counts.ended, effort(150u, 30u));
}

TEST(HostileHeap, AnotherNodeAcceptsOrEndsWithASentence) {
  const HostileCounts counts = run_trials(effort(300, 60), [](std::mt19937_64& random) {
    trial_of(NodeId(1), random, [&](MessageHeader& header) {
      if (random() % 4 == 0) damage(header, random);
    });
  });
  EXPECT_GT(counts.ended, effort(150u, 30u));
}

TEST(HostileHeap, OneTypeAtATime) {
  HostileCounts all;
  for (MessageType type = heap_message::kAllocate; type != heap_message::kEnd; ++type) {
    for (const uint16_t self : {uint16_t{0}, uint16_t{1}}) {
      const HostileCounts counts = run_trials(effort(30, 6), [type, self](std::mt19937_64& random) {
        trial_of(NodeId(self), random, [&](MessageHeader& header) {
          while (header.type != type) header = plausible(random);
          if (random() % 2 == 0) damage(header, random);
        });
      });
      all.accepted += counts.accepted;
      all.ended += counts.ended;
    }
  }
  EXPECT_GT(all.ended, effort(100u, 20u));
}

// More requests than a node can have made would run over those that still wait for acknowledgements.
TEST(HostileHeap, MoreRequestsThanCallsEndTheRun) {
  const HostileCounts counts = run_trials(1, [](std::mt19937_64&) {
    Node node(NodeId(0));
    MessageHeader request;
    request.type = heap_message::kAllocate;
    request.word = {1, 1, 0};
    for (int i = 0; i < 100'000; ++i) node.fabric.deliver(NodeId(1), request);
  });
  EXPECT_EQ(counts.ended, 1u);
}

}  // namespace
}  // namespace multigrain::testing
