// The pure engine of barriers: state machines of two kinds, chosen by the barrier's count.
//
// BarrierNode is for the barrier of all P processors. A node arrives when its last processor did, and that processor
// has flushed the node's writes, which are those of all its processors. Nodes form a k-ary tree whose root is the
// barrier's manager: UP goes to the parent when the node itself and all its children have arrived, DOWN comes back. A
// fast node cannot disturb the episode before: a parent counts its children from zero again in the very transition that
// lets DOWN go, and a child arrives again only after DOWN.
//
// Where nodes gather what they have to learn of each other along the tree (SyncHost::gathers_at_barrier), the node's last
// processor gathers from the children before UP goes to the parent, and learns from the parent, after its DOWN, before DOWN goes
// to the children. So a node gathers when all of its children have, and learns when its parent has.
//
// CountedBarrier is for any other count. No node can know which processors will come, so each node tells the manager
// of each arrival, and when `count` processors have come the manager tells each node with waiters how many of them may
// go. Arrivals of one node are alike (each has flushed before), so the node lets its oldest go, by tickets. Two
// processors of one node may be in different episodes; numbering arrivals rather than episodes keeps a fast re-arrival
// apart from a slow departure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/ids.h"
#include "base/node_set.h"

namespace multigrain {

// A node's place in a barrier's tree.
struct BarrierPlace {
  NodeId self;
  NodeId root;
  unsigned nodes = 1;
  unsigned processors = 1;  // of this node
  unsigned radix = 8;       // the most children of a tree node
  bool gathers = false;     // along the tree

  [[nodiscard]] bool is_root() const { return self == root; }
  [[nodiscard]] NodeId parent() const { return at((rank() - 1) / radix); }
  [[nodiscard]] unsigned children() const {
    const unsigned first = rank() * radix + 1;
    if (first >= nodes) return 0;
    return nodes - first < radix ? nodes - first : radix;
  }
  [[nodiscard]] NodeId child(unsigned i) const { return at(rank() * radix + 1 + i); }

 private:
  [[nodiscard]] unsigned rank() const { return (self.value + nodes - root.value) % nodes; }
  [[nodiscard]] NodeId at(unsigned rank) const { return NodeId(static_cast<uint16_t>((rank + root.value) % nodes)); }
};

struct BarrierActions {
  bool send_up = false;  // send UP(episode) to the parent
  // Send DOWN(episode) to all children, and let this node's waiters go.
  bool released = false;
  // The node's last processor must gather from the children, and call gathered().
  bool gather = false;
  // It must learn from the parent, or of the root what that has gathered, and call learned().
  bool learn = false;
};

class BarrierNode {
 public:
  // A processor arrives. Returns true if it is its node's last: it must then flush and call flushed(). Any other
  // processor waits until episode() has moved on.
  bool arrive(const BarrierPlace& place);
  BarrierActions flushed(const BarrierPlace& place);
  // These take the messages, with the episode that each carries.
  BarrierActions on_up(const BarrierPlace& place, uint32_t episode);
  BarrierActions on_down(const BarrierPlace& place, uint32_t episode);
  // The node's last processor has done what an action asked for.
  BarrierActions gathered(const BarrierPlace& place);
  BarrierActions learned();

  [[nodiscard]] uint32_t episode() const { return episode_; }
  [[nodiscard]] unsigned arrived() const { return processors_; }
  [[nodiscard]] bool busy() const { return processors_ != 0 || children_ != 0; }

 private:
  BarrierActions proceed(const BarrierPlace& place);
  BarrierActions learn();
  BarrierActions finish();

  uint32_t episode_ = 0;
  uint16_t processors_ = 0;  // of this node that have arrived
  uint16_t children_ = 0;    // subtrees that have arrived
  enum class Stage : uint8_t {
    kArriving,
    kFlushed,    // all processors of this node have arrived, and their writes are visible
    kGathering,  // so have the children; from here on only where nodes gather
    kGathered,
    kLearning,  // all nodes have gathered
  };
  Stage stage_ = Stage::kArriving;
};

// The state of a counted barrier at its manager.
class CountedBarrier {
 public:
  // A processor of `from` has arrived, its writes flushed. If it is the last of the episode, calls release(NodeId,
  // number of waiters) for each node that has any.
  template <typename Release>
  void arrive(uint32_t count, NodeId from, Release&& release) {
    ++arrived_;
    ++waiting_[from.value];
    end_ = std::max<uint16_t>(end_, from.value + 1);
    if (arrived_ != count) return;
    const uint16_t end = std::exchange(end_, 0);
    arrived_ = 0;
    for (uint16_t node = 0; node < end; ++node)
      if (const uint16_t waiters = std::exchange(waiting_[node], 0); waiters != 0) release(NodeId(node), waiters);
  }

  [[nodiscard]] bool busy() const { return arrived_ != 0; }
  [[nodiscard]] uint32_t arrived() const { return arrived_; }
  [[nodiscard]] uint16_t waiting(NodeId node) const { return waiting_[node.value]; }

 private:
  uint32_t arrived_ = 0;
  uint16_t end_ = 0;  // processors wait on no node from this one on
  std::array<uint16_t, NodeSet::kCapacity> waiting_{};
};

}  // namespace multigrain
