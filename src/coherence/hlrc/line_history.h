// Tells of a page whether lines would keep it coherent for less than the page protocol does. One node keeps this for one of
// its copies; a value that is all zero at the beginning.
//
// A change that is made here and read at another node costs, by pages, a fault, a twin, a diff and a notice here, and a
// fault and a fetch there. By lines it costs two misses for each line that was changed. So each diff says what lines would
// have saved, or would have cost in addition. When they would have saved as much as moving the page costs, it moves: that way
// a page costs at most twice what it would if the future were known. A page whose neighbour has moved is likely to be of the same
// kind: a quarter is enough for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace multigrain::hlrc {

class LineHistory {
 public:
  // The page has been compared with its twin, and so many lines have changed, of the `lines` that a page has. `like_its_neighbour`: the
  // page next to it has moved to lines. Returns true once: when the page should move to lines.
  [[nodiscard]] bool compared(uint32_t changed_lines, uint32_t lines, bool like_its_neighbour) {
    const int64_t saved =
        int64_t{saved_} + (changed_lines == 0 ? kComparison : kChangeByPages - kLine * int64_t{changed_lines});
    saved_ = static_cast<uint16_t>(std::clamp<int64_t>(saved, 0, UINT16_MAX));
    return saved_ >= (like_its_neighbour ? kLine * lines / 4 : kLine * lines) && want();
  }
  // Says that the page should move. Returns true once.
  [[nodiscard]] bool want() { return !std::exchange(is_wanted_, true); }
  // How much such a diff of a page that should move, and has not, has cost too much: in lines that miss.
  [[nodiscard]] static uint32_t lost(uint32_t changed_lines) {
    return kChangeByPages / kLine - std::min(kChangeByPages / kLine, changed_lines);
  }

 private:
  // How long these take beside each other: the comparison of a page with its twin in which nothing is found (0.3 us), the misses of a
  // line (0.6 us), and what a change costs by pages (5 us).
  static constexpr uint32_t kComparison = 1;
  static constexpr uint32_t kLine = 2;
  static constexpr uint32_t kChangeByPages = 16;

  uint16_t saved_ = 0;  // in the same unit
  bool is_wanted_ = false;
};

}  // namespace multigrain::hlrc
