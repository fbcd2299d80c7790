// HLRC's words in a node's kWords segment (fabric/words.h).
#pragma once

#include <cstdint>

#include "base/node_set.h"
#include "fabric/words.h"

namespace multigrain::words {

// The node's vector timestamp, a word a node; and the log of its write notices (write_notices.h).
inline constexpr uint64_t kVector = 4096;
inline constexpr uint64_t kNotices = uint64_t{1} << 20;
inline constexpr uint64_t kNoticeCount = uint64_t{1} << 17;
inline constexpr Range kNoticeWords{kVector, kNotices + kNoticeCount * sizeof(uint64_t) - kVector};
static_assert(kVector + NodeSet::kCapacity * sizeof(uint64_t) <= kNotices);

// The fetch log, which other nodes write: a ring of kMarkCount words a node.
inline constexpr uint64_t kMarks = uint64_t{66} << 20;
inline constexpr uint64_t kMarkCount = uint64_t{1} << 14;
inline constexpr Range kFetchWords{kMarks, NodeSet::kCapacity* kMarkCount * sizeof(uint64_t)};

}  // namespace multigrain::words
