// This says where HLRC's words are in a node's kWords segment (fabric/words.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/node_set.h"
#include "base/steps.h"
#include "fabric/words.h"

namespace multigrain::words {

// These are the node's vector timestamp, with a word for each node, and the log of its write notices (write_notices.h).
inline constexpr uint64_t kVector = 4096;
inline constexpr uint64_t kNotices = uint64_t{1} << 20;
inline constexpr uint64_t kNoticeBytes = uint64_t{1} << 20;
MULTIGRAIN_RING(kNoticeCount, kNoticeBytes / sizeof(uint64_t));
inline constexpr Range kNoticeWords{kVector, kNotices + kNoticeBytes - kVector};

// Here are lists of runs of pages, each behind the number of its runs: the pages that the node has written in the last
// episode, and in the one before, and those that it wants to move to lines at the end of either (episode_pages.h). They lie
// between the timestamp and the log.
inline constexpr uint64_t kEpisodes = uint64_t{1} << 17;
inline constexpr uint64_t kEpisodeBytes = uint64_t{3} << 17;  // the size of each list
MULTIGRAIN_RING(kEpisodeRuns, kEpisodeBytes / sizeof(uint64_t) - 1);
static_assert(kVector + NodeSet::kCapacity * sizeof(uint64_t) <= kEpisodes);
// Where notices are gathered along the tree of a barrier (gathered_notices.h), the place of the first list is for what a node
// has gathered, and that of the second for what all nodes have: no node reads lists then.
inline constexpr uint64_t kGatheredUp = kEpisodes;
inline constexpr uint64_t kGatheredDown = kEpisodes + kEpisodeBytes;
inline constexpr uint64_t kToLines = kEpisodes + 2 * kEpisodeBytes;
inline constexpr uint64_t kToLinesBytes = uint64_t{1} << 16;  // the size of each list
MULTIGRAIN_RING(kToLinesRuns, kToLinesBytes / sizeof(uint64_t) - 1);
static_assert(kToLines + 2 * kToLinesBytes <= kNotices);

// Here is the fetch log, which other nodes write. It has a ring of fetch_log_count() words for each node, a power of two.
inline constexpr uint64_t kFetchLog = uint64_t{66} << 20;
inline constexpr uint64_t kFetchLogBytes = uint64_t{1} << 17;  // the size of each node's ring
MULTIGRAIN_RING(kFetchLogCount, kFetchLogBytes / sizeof(uint64_t));
inline constexpr unsigned kFetchLogs = 64;  // so many rings of that size
inline constexpr Range kFetchWords{kFetchLog, kFetchLogs* kFetchLogBytes};
static_assert(std::has_single_bit(kFetchLogBytes));
// Returns how many entries the ring of a node has on a machine of so many nodes. The rings of a larger one are shorter.
inline uint64_t fetch_log_count(unsigned nodes) {
  uint64_t count = kFetchLogCount;
  for (unsigned places = kFetchLogs; places < nodes; places *= 2) count /= 2;
  return count;
}
static_assert(NodeSet::kCapacity * sizeof(uint64_t) <= kFetchLogBytes);

// The entries of a ring do not lie one behind the other. A home looks at the next entry of every node's ring at the end of each
// interval, and to look at memory that nobody has written makes a page of it. So the rings' first eight entries, a cache
// line of each node's, lie together, then their second eight, and so on: those of 64 nodes are in a page.
inline uint64_t fetch_log_line(unsigned nodes) {
  return std::min<uint64_t>(8, fetch_log_count(nodes));
}
// Returns where the entry of `node` at `position` of its ring is.
inline uint64_t fetch_log_word(unsigned nodes, uint64_t node, uint64_t position) {
  const uint64_t line = fetch_log_line(nodes);
  const uint64_t entry = position & (fetch_log_count(nodes) - 1);
  return kFetchLog + ((entry / line * nodes + node) * line + entry % line) * sizeof(uint64_t);
}
// Returns whose ring a word of the fetch log belongs to, and which of its entries it is.
struct FetchLogPlace {
  uint64_t node = 0;
  uint64_t entry = 0;
};
inline FetchLogPlace fetch_log_place(unsigned nodes, uint64_t word) {
  const uint64_t line = fetch_log_line(nodes);
  const uint64_t index = (word - kFetchLog) / sizeof(uint64_t);
  return {.node = index / line % nodes, .entry = index / line / nodes * line + index % line};
}

}  // namespace multigrain::words
