// What is where in a node's kWords segment: the map that the rooms which keep words there agree on.
//
// Offsets and sizes in bytes. The segment is sparse: what is not touched costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fine_grain.h"
#include "base/node_set.h"

namespace multigrain::words {

// 0 .. 4 KiB: free for tests and measurements.

// src/coherence/hlrc: the node's vector timestamp, a word a node; the log of write notices; and what other nodes have
// marked as fetched, a ring of kMarkCount words a node. (hlrc/notice_reader.h, hlrc/fetch_log.h)
inline constexpr uint64_t kVector = 4096;
inline constexpr uint64_t kNotices = uint64_t{1} << 20;
inline constexpr uint64_t kNoticeCount = uint64_t{1} << 17;

// src/sync: the network locks, three words a lock (sync/network_lock.h).
inline constexpr uint64_t kLocks = uint64_t{2} << 20;
inline constexpr uint64_t kLockCount = uint64_t{1} << 21;
inline constexpr uint64_t kBytesPerLock = 32;

inline constexpr uint64_t kMarks = kLocks + kLockCount * kBytesPerLock;
inline constexpr uint64_t kMarkCount = uint64_t{1} << 14;

// src/coherence: the hazards of the node's threads (docs/internals/fine-grain.md). A line of which the first word says
// how many slots there have been, and the second is the node's rights epoch; then a line a slot
// (coherence/hazard_slots.h).
inline constexpr uint64_t kHazards = kMarks + NodeSet::kCapacity * kMarkCount * sizeof(uint64_t);
inline constexpr uint64_t kHazardSlots = 4096 - 1;
inline constexpr uint64_t kBytesPerHazardSlot = 64;
inline constexpr uint64_t kRightsEpoch = kHazards + sizeof(uint64_t);

// src/memory/heap: who has claimed the first-touch pages whose arbiter the node is. (home_claims.h)
inline constexpr uint64_t kHomes = kHazards + (1 + kHazardSlots) * kBytesPerHazardSlot;
inline constexpr uint64_t kHomeCount = uint64_t{1} << 20;

// How long the segment is on every node.
inline constexpr uint64_t kBytes = kHomes + kHomeCount * sizeof(uint64_t);

// How long the kLines segment of a region is: a word for each line, of the shortest lines there are.
constexpr uint64_t line_table_bytes(uint64_t region_bytes) {
  return (region_bytes >> MG_FINE_MIN_LINE_SHIFT) * sizeof(uint64_t);
}

static_assert(NodeSet::kCapacity <= 64);
static_assert(kHazards % 4096 == 0 && kBytes % 4096 == 0);
static_assert(kVector + NodeSet::kCapacity * sizeof(uint64_t) <= kNotices);
static_assert(kNotices + kNoticeCount * sizeof(uint64_t) <= kLocks);

}  // namespace multigrain::words
