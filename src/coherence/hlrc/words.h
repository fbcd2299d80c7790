// HLRC's words in a node's kWords segment (fabric/words.h).
#pragma once

#include <cstdint>

#include "base/node_set.h"
#include "base/steps.h"
#include "fabric/words.h"

namespace multigrain::words {

// The node's vector timestamp, a word a node; and the log of its write notices (write_notices.h).
inline constexpr uint64_t kVector = 4096;
inline constexpr uint64_t kNotices = uint64_t{1} << 20;
inline constexpr uint64_t kNoticeBytes = uint64_t{1} << 20;
MULTIGRAIN_RING(kNoticeCount, kNoticeBytes / sizeof(uint64_t));
inline constexpr Range kNoticeWords{kVector, kNotices + kNoticeBytes - kVector};

// What the node has written since the barrier of all processors before the last one, and before the one before that
// (episode_writes.h): two lists of runs of pages, each behind the number of its runs. Between the timestamp and the log.
inline constexpr uint64_t kEpisodes = uint64_t{1} << 17;
inline constexpr uint64_t kEpisodeBytes = uint64_t{3} << 17;  // of a list
MULTIGRAIN_RING(kEpisodeRuns, kEpisodeBytes / sizeof(uint64_t) - 1);
static_assert(kVector + NodeSet::kCapacity * sizeof(uint64_t) <= kEpisodes);
static_assert(kEpisodes + 2 * kEpisodeBytes <= kNotices);

// The fetch log, which other nodes write: a ring of kFetchLogCount words a node.
inline constexpr uint64_t kFetchLog = uint64_t{66} << 20;
inline constexpr uint64_t kFetchLogBytes = uint64_t{1} << 17;  // of a node's ring
MULTIGRAIN_RING(kFetchLogCount, kFetchLogBytes / sizeof(uint64_t));
inline constexpr Range kFetchWords{kFetchLog, NodeSet::kCapacity* kFetchLogBytes};

}  // namespace multigrain::words
