// This says where HLRC's words are in a node's kWords segment (fabric/words.h).
#pragma once

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

// Here is the fetch log, which other nodes write. It has a ring of fetch_log_count() words for each node.
inline constexpr uint64_t kFetchLog = uint64_t{66} << 20;
inline constexpr uint64_t kFetchLogBytes = uint64_t{1} << 17;  // the size of each node's ring
MULTIGRAIN_RING(kFetchLogCount, kFetchLogBytes / sizeof(uint64_t));
inline constexpr unsigned kFetchLogs = 64;  // so many rings of that size
inline constexpr Range kFetchWords{kFetchLog, kFetchLogs* kFetchLogBytes};
// Returns how many entries the ring of a node has on a machine of so many nodes. The rings of a larger one are shorter.
inline uint64_t fetch_log_count(unsigned nodes) {
  uint64_t count = kFetchLogCount;
  for (unsigned places = kFetchLogs; places < nodes; places *= 2) count /= 2;
  return count;
}
static_assert(NodeSet::kCapacity * sizeof(uint64_t) <= kFetchLogBytes);

}  // namespace multigrain::words
