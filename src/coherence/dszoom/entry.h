// The words of the line table (docs/internals/fine-grain.md): a directory entry at a line's home, an MTAG elsewhere.
#pragma once

#include <cstdint>

#include "base/fine_grain.h"
#include "base/ids.h"
#include "base/node_set.h"
#include "coherence/hazard.h"

namespace multigrain::dszoom {

// How many nodes an entry has bits for.
inline constexpr unsigned kMaxNodes = MG_FINE_MAX_NODES;

inline constexpr uint64_t kInvalid = 0;  // elsewhere than at home
inline constexpr uint64_t kReadable = MG_FINE_READABLE;
inline constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;
inline constexpr uint64_t kLocked = MG_FINE_LOCKED;

// Who has a copy, says an entry that is not locked.
inline NodeSet holders(uint64_t entry, NodeId home) {
  if (entry == 0 || entry == kExclusive) return NodeSet::of(home);
  NodeSet nodes;
  for (uint64_t rest = entry >> MG_FINE_HOLDERS_SHIFT; rest != 0; rest &= rest - 1)
    nodes.insert(NodeId(static_cast<uint16_t>(std::countr_zero(rest))));
  return nodes;
}

// The entry of a line that `nodes` have: one of them exclusively, more for reading. Nothing is ever evicted, and only a
// store leaves a line with one holder: so one holder is an exclusive one ([DSZOOM], Algorithm 1:
// number(presence_bits) is 1).
inline uint64_t make_entry(NodeSet nodes, NodeId home) {
  if (nodes == NodeSet::of(home)) return kExclusive;
  return nodes.bits() << MG_FINE_HOLDERS_SHIFT | (nodes.contains(home) ? kReadable : 0);
}

// Whether a node that finds `word` in its own table may read the line, or store to it. The home has all lines that it
// has never touched (0).
inline bool may_read(uint64_t word, bool is_home) {
  return (word & kReadable) != 0 || (is_home && word == 0);
}
inline bool may_store(uint64_t word, bool is_home) {
  return word == kExclusive || (is_home && word == 0);
}

}  // namespace multigrain::dszoom
