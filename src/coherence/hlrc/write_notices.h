// Write notices: the pages that a node has written in its intervals. Each node appends to its own log, which lies in
// memory that it exports; the others read it with one-sided gets. How the log is read, and what it says, are functions
// of values. After a barrier every node has taken in every log, so all of a ring is free again
// (docs/internals/hlrc.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "coherence/hlrc/log_entry.h"

namespace multigrain::hlrc {

// The writer's side: makes entries of pages, which come in ascending order.
class NoticeLog {
 public:
  explicit constexpr NoticeLog(uint64_t capacity) : capacity_(capacity), open_(LogEntry::kMaxPages) {}

  // An entry that the writer must put into its ring now.
  struct Append {
    uint64_t slot = 0;
    uint64_t entry = 0;
  };
  std::optional<Append> add(PageId page) { return append(open_.add(page)); }
  // After the interval's last page.
  std::optional<Append> close() { return append(open_.close()); }
  // The position behind the last entry: what the writer publishes when all of them are in the ring.
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

// Where entries [begin, end) of a log lie in its ring: `length` of them from `slot`, and then the rest from slot 0.
// nullopt: more than the ring holds, so some are overwritten.
struct RingPiece {
  uint64_t slot = 0;
  uint64_t length = 0;
  uint64_t rest = 0;
};
[[nodiscard]] std::optional<RingPiece> pieces_of_ring(uint64_t begin, uint64_t end, uint64_t capacity);

enum class NoticesRead : uint8_t {
  kAll,
  kOverwritten,  // the reader has come too late for some, or too early
  kOutside       // one names pages that the region does not have
};
// Reads `entries`, which were got from position `begin` on, and writes the run of each to `runs`, unless the result is
// something else than kAll.
[[nodiscard]] NoticesRead read_notices(std::span<const uint64_t> entries, uint64_t begin, uint64_t capacity,
                                       uint64_t pages, std::span<NoticeRun> runs);

// Puts runs into ascending order, and joins those that touch: whichever nodes wrote them, what lies together loses its
// rights in one call (B.1, B.3). The result is the front of `runs`.
[[nodiscard]] std::span<const NoticeRun> join_runs(std::span<NoticeRun> runs);

[[nodiscard]] uint64_t pages_of(std::span<const NoticeRun> runs);

// Visits pages `first` to `first + count - 1` of all that `runs` name, counted through them, as runs.
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
