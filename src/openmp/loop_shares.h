// How a loop with schedule(dynamic) or schedule(guided) is given out, over nodes that share memory at a price.
//
// Work is counted in chunks. A team's nodes take chunks in bulk, and the threads of a node take theirs out of the node's
// bulk, which is in the node's own memory. What no node has taken yet is a LoopRest, in shared memory, under a lock.
//
//   L1  Each chunk is in exactly one place: in the LoopRest, in one node's bulk, or taken by a thread.
//   L2  A node begins with the chunks that own_share() gives it, without a look at the LoopRest; what the LoopRest holds
//       in the beginning is what is left of all shares then. All nodes compute the same from the same numbers.
//   L3  In an ascending loop (a monotonic or ordered one, or one whose iterations wait for each other) nothing is given
//       out in advance, and every take() continues where the one before it ended, whichever node took. So no thread
//       waits for a chunk that is behind another which the same node has not given out yet.
//   L4  A node's bulk is given out in ascending order. With L3 a thread's chunks ascend.
//   L5  The thread that has taken the loop's last chunk takes no other: compiled code takes the values of lastprivate
//       variables from what a thread executed last. The last chunk is the last of its bulk; so the thread leaves no chunk
//       behind that only it could take, and what other shares still have, other nodes take.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "openmp/loop_math.h"

namespace multigrain::openmp {

inline constexpr unsigned kMaxNodes = 64;

// Which threads of a team are on which of its nodes: threads of a node follow each other.
struct TeamShape {
  unsigned threads = 1;
  unsigned nodes = 1;
  std::array<uint32_t, kMaxNodes + 1> first{};  // thread of each node; behind the last node, `threads`

  [[nodiscard]] unsigned threads_of(unsigned node) const { return first[node + 1] - first[node]; }
};

// The chunks that no node has taken.
struct LoopRest {
  std::array<Interval, kMaxNodes> part;
};

// Returns the chunks that fall to a node if all threads get the same.
inline Interval fair_share(uint64_t chunks, const TeamShape& team, unsigned node) {
  return {part_of(chunks, team.first[node], team.threads).begin,
          part_of(chunks, team.first[node + 1] - 1u, team.threads).end};
}

// Returns the chunks with which a node begins (L2): half of its share, but one for each of its threads if there are as
// many. All of them if the team has one node.
inline Interval own_share(uint64_t chunks, const TeamShape& team, unsigned node, bool ascending) {
  if (team.nodes == 1) return {0, chunks};
  if (ascending) return {};
  const Interval share = fair_share(chunks, team, node);
  const uint64_t taken = std::min(share.size(), std::max<uint64_t>(share.size() / 2, team.threads_of(node)));
  return {share.begin, share.begin + taken};
}

// Makes the rest of a loop that has just begun.
inline void begin_rest(LoopRest& rest, uint64_t chunks, const TeamShape& team, bool ascending) {
  for (unsigned node = 0; node < team.nodes; ++node) {
    if (ascending)
      rest.part[node] = node == 0 ? Interval{0, chunks} : Interval{};
    else
      rest.part[node] = {own_share(chunks, team, node, ascending).end, fair_share(chunks, team, node).end};
  }
}

// Returns whether begin_rest() makes a rest with nothing in it, so that no node need look at it.
inline bool rest_is_empty(uint64_t chunks, const TeamShape& team, bool ascending) {
  if (team.nodes == 1 || chunks == 0) return true;
  if (ascending) return false;
  for (unsigned node = 0; node < team.nodes; ++node)
    if (own_share(chunks, team, node, ascending).end != fair_share(chunks, team, node).end) return false;
  return true;
}

// A node takes chunks: half of what is left of its own share, and when nothing is left of that, of the share of which
// most is left, from its end. Returns no chunk if none is left.
inline Interval take(LoopRest& rest, const TeamShape& team, unsigned node, bool ascending) {
  const unsigned threads = team.threads_of(node);
  if (ascending) {
    Interval& all = rest.part[0];
    const uint64_t wanted = std::max<uint64_t>(threads, all.size() / (uint64_t{2} * team.nodes));
    const Interval taken{all.begin, all.begin + std::min(wanted, all.size())};
    all.begin = taken.end;
    return taken;
  }
  const auto amount = [&](const Interval& part) {
    return std::min(part.size(), std::max<uint64_t>(threads, part.size() / 2));
  };
  Interval& own = rest.part[node];
  if (!own.empty()) {
    const Interval taken{own.begin, own.begin + amount(own)};
    own.begin = taken.end;
    return taken;
  }
  Interval* largest = &rest.part[0];
  for (unsigned other = 1; other < team.nodes; ++other)
    if (rest.part[other].size() > largest->size()) largest = &rest.part[other];
  const Interval taken{largest->end - amount(*largest), largest->end};
  largest->end = taken.begin;
  return taken;
}

// A thread takes chunks out of its node's bulk: one, or with schedule(guided) its part of half the bulk.
inline Interval take_of_bulk(Interval& bulk, unsigned threads, bool guided) {
  const uint64_t wanted = guided ? std::max<uint64_t>(1, bulk.size() / (uint64_t{2} * threads)) : 1;
  const Interval taken{bulk.begin, bulk.begin + std::min(wanted, bulk.size())};
  bulk.begin = taken.end;
  return taken;
}

}  // namespace multigrain::openmp
