// Tells of a page whether lines would keep it coherent for less than the page protocol does. One node keeps this for one of
// its copies; a value that is all zero at the beginning.
//
// A change that is made here and read at another node costs, by pages, a fault, a twin, a diff and a notice here, and a
// fault and a fetch there. By lines it costs two misses for each run of lines that have changed next to each other, which a miss takes
// along. So each diff says what lines would have saved, or would have cost in addition. When they would have saved as
// much as moving the page costs, it moves: that way a page costs at most twice what it would if the future were known. A page
// whose neighbour has moved is likely to be of the same kind: a quarter is enough for it. Where nodes do not read what others have
// changed lines save more than that; line_trials.h finds that out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "coherence/line_costs.h"

namespace multigrain::hlrc {

// How many lines a diff has changed, in how many runs of lines next to each other.
struct ChangedLines {
  uint32_t lines = 0;
  uint32_t runs = 0;
};

class LineHistory {
 public:
  // The page, which has so many `lines`, has been compared with its twin. `like_its_neighbour`: the page next to it has moved to
  // lines. Returns true once: when the page should move to lines.
  [[nodiscard]] bool compared(ChangedLines changed, uint32_t lines, bool like_its_neighbour) {
    if (changed.lines != 0 && changes_ != UINT8_MAX) ++changes_;
    const int64_t saved = int64_t{saved_} + saved_by(changed);
    saved_ = static_cast<uint16_t>(std::clamp<int64_t>(saved, 0, UINT16_MAX));
    return saved_ >= (like_its_neighbour ? move(lines) / 4 : move(lines)) && want();
  }
  // Says that the page should move. Returns true once.
  [[nodiscard]] bool want() { return !std::exchange(is_wanted_, true); }
  [[nodiscard]] bool is_wanted() const { return is_wanted_; }
  // Returns how often a comparison has found that something had changed; at most 255.
  [[nodiscard]] uint32_t changes() const { return changes_; }
  // Returns how many tenths of a microsecond a change costs by pages, and how many it costs to move a page of so many lines.
  [[nodiscard]] static constexpr uint32_t change_by_pages() { return kChangeByPages; }
  [[nodiscard]] static constexpr uint32_t move(uint32_t lines) { return LineCosts::kMiss * lines; }
  // Returns how many tenths of a microsecond such a comparison of a page that should move, and has not, has cost too much.
  [[nodiscard]] static uint32_t lost(ChangedLines changed) {
    return static_cast<uint32_t>(std::max<int64_t>(0, saved_by(changed)));
  }

 private:
  // How long these take beside what lines cost, in tenths of a microsecond: the comparison of a page with its twin in which nothing is
  // found, and a change by pages.
  static constexpr int64_t kComparison = 3;
  static constexpr int64_t kChangeByPages = 50;

  static int64_t saved_by(ChangedLines changed) {
    if (changed.lines == 0) return kComparison;
    return kChangeByPages - int64_t{LineCosts::of_two(changed.runs, changed.lines)};
  }

  uint16_t saved_ = 0;  // tenths of a microsecond
  uint8_t changes_ = 0;
  bool is_wanted_ = false;
};

}  // namespace multigrain::hlrc
