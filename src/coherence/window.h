// A window's word (base/fine_grain.h): what a processor that is about to use lines publishes, and a requester reads.
#pragma once

#include <cstdint>

#include "base/fine_grain.h"

namespace multigrain {

// The greatest number of a line, of the smallest lines, and the mark of a window over all are apart.
static_assert((uint64_t{1} << (MG_FINE_VIEW_SHIFT - MG_FINE_MIN_LINE_SHIFT)) <= MG_FINE_WINDOW_ALL);

constexpr uint64_t make_window(uint64_t first_line, uint64_t lines, bool stores) {
  return first_line + lines * MG_FINE_WINDOW_LINE + (stores ? MG_FINE_WINDOW_STORES : 0);
}

// Whether the window is one of stores, or any if `loads` says so, and has one of `lines` lines from `first` on. A
// closed one (0) covers nothing.
constexpr bool covers(uint64_t window, uint64_t first, uint64_t lines, bool loads) {
  if (window == 0 || (!loads && (window & MG_FINE_WINDOW_STORES) == 0)) return false;
  if ((window & MG_FINE_WINDOW_ALL) != 0) return true;
  const uint64_t begin = window & (MG_FINE_WINDOW_LINE - 1);
  const uint64_t end = begin + (window & ~MG_FINE_WINDOW_STORES) / MG_FINE_WINDOW_LINE;
  return begin < first + lines && first < end;
}
constexpr bool covers(uint64_t window, uint64_t line, bool loads) {
  return covers(window, line, 1, loads);
}

}  // namespace multigrain
