// Entries of the two logs of HLRC, which lie in memory that a node exports: its write notices, and the fetches of its
// pages by other nodes.
//
// A position counts the entries that were ever appended. A log is a ring: old entries are overwritten without asking
// any node. An entry says which lap it belongs to, so a reader that comes too late finds out, and then treats every
// page as named: correct, bounded, and counted (docs/internals/hlrc.md).
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace multigrain::hlrc {

// Consecutive pages that a log names.
struct NoticeRun {
  PageId first;
  uint64_t count = 0;

  [[nodiscard]] constexpr uint64_t end() const { return first.value + count; }
  bool operator==(const NoticeRun&) const = default;
};

class LogEntry {
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

// Joins pages, which come in ascending order, to runs of at most `longest` consecutive ones.
class RunJoiner {
 public:
  explicit constexpr RunJoiner(uint64_t longest) : longest_(longest) {}

  // The run that `page` does not continue, if there is one: it is complete.
  std::optional<NoticeRun> add(PageId page) {
    if (run_.count != 0 && run_.count < longest_ && run_.end() == page.value) {
      ++run_.count;
      return std::nullopt;
    }
    const std::optional<NoticeRun> complete = close();
    run_ = {page, 1};
    return complete;
  }
  // The last one, if there is one.
  std::optional<NoticeRun> close() {
    if (run_.count == 0) return std::nullopt;
    const NoticeRun complete = run_;
    run_ = {};
    return complete;
  }

 private:
  uint64_t longest_;
  NoticeRun run_;
};

}  // namespace multigrain::hlrc
