// Write notices name the pages that a node has written in its intervals. Each node appends to its own log, which lies
// in memory that it exports; the other nodes read it with one-sided gets. How the log is read, and what it says, are
// functions of values. After a barrier every node has applied every log, so all of a ring is free again
// (docs/internals/hlrc.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "coherence/hlrc/log_entry.h"

namespace multigrain::hlrc {

// The writer of a log makes its entries with this, from pages that must come in ascending order.
class NoticeLog {
 public:
  explicit constexpr NoticeLog(uint64_t capacity) : capacity_(capacity), open_(LogEntry::kMaxPages) {}

  // The writer must put this entry into its ring now.
  struct Append {
    uint64_t slot = 0;
    uint64_t entry = 0;
  };
  std::optional<Append> add(PageId page) { return append(open_.add(page)); }
  // Must be called after the interval's last page.
  std::optional<Append> close() { return append(open_.close()); }
  // Returns the position behind the last entry. The writer publishes it when all entries are in the ring.
  [[nodiscard]] uint64_t end() const { return end_; }

 private:
  std::optional<Append> append(const std::optional<NoticeRun>& run) {
    if (!run) return std::nullopt;
    const uint64_t position = end_++;
    return Append{position % capacity_, LogEntry::encode(*run, position, capacity_)};
  }

  uint64_t capacity_;
  uint64_t end_ = 0;
  RunJoiner open_;
};

// This says where entries [begin, end) of a log lie in its ring: `length` of them from `slot` on, and the rest from
// slot 0 on. pieces_of_ring() returns nullopt if there are more than the ring holds, so that some are overwritten.
struct RingPiece {
  uint64_t slot = 0;
  uint64_t length = 0;
  uint64_t rest = 0;
};
[[nodiscard]] std::optional<RingPiece> pieces_of_ring(uint64_t begin, uint64_t end, uint64_t capacity);

enum class NoticesRead : uint8_t {
  kAll,
  kOverwritten,  // the reader came too late, or too early
  kOutside       // a notice names pages outside the region
};
// Reads `entries`, which were got from position `begin` on, and writes the run of each to `runs`. Their values mean
// nothing if the result is not kAll.
[[nodiscard]] NoticesRead read_notices(std::span<const uint64_t> entries, uint64_t begin, uint64_t capacity,
                                       uint64_t pages, std::span<NoticeRun> runs);

// Puts runs into ascending order, and joins those that touch, so that neighbouring pages lose their rights in one call,
// whichever nodes wrote them (B.1, B.3). The result is the front of `runs`.
[[nodiscard]] std::span<const NoticeRun> join_runs(std::span<NoticeRun> runs);

[[nodiscard]] uint64_t pages_of(std::span<const NoticeRun> runs);

// Visits, as runs, the pages with numbers `first` to `first + count - 1` of all pages that `runs` name, in their order.
template <typename Visit>
void for_each_slice(std::span<const NoticeRun> runs, uint64_t first, uint64_t count, Visit&& visit) {
  for (const NoticeRun& run : runs) {
    if (first >= run.count) {
      first -= run.count;
      continue;
    }
    const uint64_t taken = std::min(count, run.count - first);
    visit(NoticeRun{PageId(run.first.value + first), taken});
    first = 0;
    if ((count -= taken) == 0) return;
  }
}

}  // namespace multigrain::hlrc
