// This is how entries of HLRC's two logs are encoded, which lie in memory that a node exports: the log of its write
// notices, and that of the fetches of its pages by other nodes.
//
// A position counts the entries that were ever appended. A log is a ring: old entries are overwritten without asking
// any node. An entry says to which lap of the ring it belongs, so a reader that comes too late finds that out, and then
// treats every page as named: that is correct, bounded, and counted (docs/internals/hlrc.md).
#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace multigrain::hlrc {

// A log names consecutive pages together.
struct NoticeRun {
  PageId first;
  uint64_t count = 0;

  [[nodiscard]] constexpr uint64_t end() const { return first.value + count; }
  bool operator==(const NoticeRun&) const = default;
};

class LogEntry {
 public:
  static constexpr uint64_t kMaxPages = 4096;  // pages in one entry

  // Encodes an entry at `position` of a ring of `capacity` entries. No entry is encoded as 0.
  static uint64_t encode(NoticeRun run, uint64_t position, uint64_t capacity) {
    return lap_of(position, capacity) << kLapShift | (run.count - 1) << kCountShift | run.first.value;
  }
  // Returns nullopt if this is not what was appended at `position`: that has been overwritten, or has not been appended
  // yet.
  static std::optional<NoticeRun> decode(uint64_t entry, uint64_t position, uint64_t capacity) {
    if (entry >> kLapShift != lap_of(position, capacity)) return std::nullopt;
    return NoticeRun{PageId(entry & 0xffffffffu), (entry >> kCountShift & (kMaxPages - 1)) + 1};
  }
  // Returns, for an entry for which decode() returns nullopt, whether nothing has been appended at `position` yet.
  static bool is_older(uint64_t entry, uint64_t position, uint64_t capacity) {
    return entry == 0 || (position >= capacity && entry >> kLapShift == lap_of(position - capacity, capacity));
  }

 private:
  static constexpr unsigned kCountShift = 32;
  static constexpr unsigned kLapShift = 44;
  // Returns a number that is never 0. A reader would have to sleep through a million laps to be deceived, and acquires
  // nothing meanwhile.
  static constexpr uint64_t lap_of(uint64_t position, uint64_t capacity) {
    return position / capacity % ((uint64_t{1} << 20) - 1) + 1;
  }
};

// Joins pages, which must come in ascending order, to runs of at most `longest` consecutive pages.
class RunJoiner {
 public:
  explicit constexpr RunJoiner(uint64_t longest) : longest_(longest) {}

  // Adds a page. If it does not continue the last run, returns that run, which is complete.
  std::optional<NoticeRun> add(PageId page) {
    if (run_.count != 0 && run_.count < longest_ && run_.end() == page.value) {
      ++run_.count;
      return std::nullopt;
    }
    const std::optional<NoticeRun> complete = close();
    run_ = {page, 1};
    return complete;
  }
  // Returns the last run, if there is one.
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
