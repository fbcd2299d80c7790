// These are vector timestamps. An interval of a node is a range of positions in its log of write notices; so a
// timestamp is, for each node, the position up to which its notices are known. A node's processors share its access
// rights, and therefore its timestamp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/node_set.h"

// Names how many nodes the arrays of this protocol are for. A test that keeps the stacks of threads in the states that it
// explores makes them shorter (base/steps.h).
#ifndef MULTIGRAIN_MOST_NODES
#define MULTIGRAIN_MOST_NODES NodeSet::kCapacity
#endif

namespace multigrain::hlrc {

inline constexpr size_t kMostNodes = MULTIGRAIN_MOST_NODES;

using VectorTime = std::array<uint64_t, kMostNodes>;

// Returns the nodes whose notices an acquire up to `wanted` must apply, beyond what is `known` at node `self`. That
// node itself is not among them.
template <typename Wanted, typename Known>
[[nodiscard]] NodeSet nodes_with_news(const Wanted& wanted, const Known& known, NodeId self, unsigned nodes) {
  NodeSet news;
  for (uint16_t n = 0; n < nodes; ++n)
    if (n != self.value && wanted[n] > known[n]) news.insert(NodeId(n));
  return news;
}

}  // namespace multigrain::hlrc
