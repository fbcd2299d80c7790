// What is where in a node's kWords segment: the map that the rooms which keep words there agree on.
//
// Offsets and sizes in bytes. The segment is sparse: what is not touched costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/node_set.h"

namespace multigrain::words {

// 0 .. 4 KiB: free for tests and measurements.

// src/coherence/hlrc: the node's vector timestamp, a word a node; what other nodes have marked as fetched, how many
// marks there are, and the marks; the log of write notices. (hlrc/notice_log.h, hlrc/shell.h)
inline constexpr uint64_t kVector = 4096;
inline constexpr uint64_t kMarksEnd = kVector + 64 * sizeof(uint64_t) + 512;
inline constexpr uint64_t kMarks = 512 * 1024;
inline constexpr uint64_t kMarkCount = uint64_t{1} << 16;
inline constexpr uint64_t kNotices = uint64_t{1} << 20;
inline constexpr uint64_t kNoticeCount = uint64_t{1} << 17;

// src/sync: the network locks, three words a lock (sync/network_lock.h).
inline constexpr uint64_t kLocks = uint64_t{2} << 20;
inline constexpr uint64_t kLockCount = uint64_t{1} << 21;
inline constexpr uint64_t kBytesPerLock = 32;

// How long the segment is on every node.
inline constexpr uint64_t kBytes = kLocks + kLockCount * kBytesPerLock;

static_assert(NodeSet::kCapacity <= 64);
static_assert(kMarks + kMarkCount * sizeof(uint64_t) <= kNotices);
static_assert(kNotices + kNoticeCount * sizeof(uint64_t) <= kLocks);

}  // namespace multigrain::words
