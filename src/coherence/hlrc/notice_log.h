// The log of a node's write notices, and vector timestamps.
//
// A node appends to its own log, which lies in memory that it exports; the others read it with one-sided gets. A
// position counts the entries that were ever appended, so an interval is a range of positions, and a vector timestamp
// ([GeNIMA], III.B; the HLRC papers it cites) is for each node the position up to which its notices are
// known. The log is a ring: old entries are overwritten without asking anybody. An entry says which lap it belongs to,
// so a reader that comes too late finds out, and then treats every page as named: correct, bounded, and counted.
// Nothing is ever collected while an interval runs; after a barrier every node has taken in every log, so all of a
// ring is free again (docs/internals/hlrc.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/node_set.h"

namespace multigrain::hlrc {

// Consecutive pages that a notice names.
struct NoticeRun {
  PageId first;
  uint64_t count = 0;

  bool operator==(const NoticeRun&) const = default;
};

using VectorTime = std::array<uint64_t, NodeSet::kCapacity>;

class NoticeEntry {
 public:
  static constexpr uint64_t kMaxPages = 4096;  // that one entry can name

  // An entry at `position` of a ring of `capacity` entries. 0 is no entry.
  static uint64_t encode(NoticeRun run, uint64_t position, uint64_t capacity) {
    return lap_of(position, capacity) << kLapShift | (run.count - 1) << kCountShift | run.first.value;
  }
  // nullopt: this is not what was appended at `position`, which has been overwritten, or is not there yet.
  static std::optional<NoticeRun> decode(uint64_t entry, uint64_t position, uint64_t capacity) {
    if (entry >> kLapShift != lap_of(position, capacity)) return std::nullopt;
    return NoticeRun{PageId(entry & 0xffffffffu), (entry >> kCountShift & (kMaxPages - 1)) + 1};
  }
  // Of one for which decode() has nothing: whether nothing has been appended at `position` yet.
  static bool is_older(uint64_t entry, uint64_t position, uint64_t capacity) {
    return entry == 0 || (position >= capacity && entry >> kLapShift == lap_of(position - capacity, capacity));
  }

 private:
  static constexpr unsigned kCountShift = 32;
  static constexpr unsigned kLapShift = 44;
  // Never 0. A reader would have to sleep through a million laps to be deceived, and acquires nothing meanwhile.
  static constexpr uint64_t lap_of(uint64_t position, uint64_t capacity) {
    return position / capacity % ((uint64_t{1} << 20) - 1) + 1;
  }
};

}  // namespace multigrain::hlrc
