// A window's word (base/fine_grain.h): what a processor that is about to use lines publishes, and a requester reads.
#pragma once

#include <cstdint>

#include "base/fine_grain.h"

namespace multigrain {

constexpr uint64_t make_window(uint64_t first_line, uint64_t lines, bool stores) {
  return first_line + lines * MG_FINE_WINDOW_LINE + (stores ? MG_FINE_WINDOW_STORES : 0);
}

// Whether the window is one of stores, or any if `loads` says so, and has one of `lines` lines from `first` on. A
// closed one (0) covers nothing.
constexpr bool covers(uint64_t window, uint64_t first, uint64_t lines, bool loads) {
  if (window == 0 || (!loads && (window & MG_FINE_WINDOW_STORES) == 0)) return false;
  const uint64_t begin = window & (MG_FINE_WINDOW_LINE - 1);
  const uint64_t end = begin + (window & ~MG_FINE_WINDOW_STORES) / MG_FINE_WINDOW_LINE;
  return begin < first + lines && first < end;
}
constexpr bool covers(uint64_t window, uint64_t line, bool loads) {
  return covers(window, line, 1, loads);
}

}  // namespace multigrain
