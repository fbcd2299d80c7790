// This is how a hazard is encoded in a word (memory/checked_memory.h). A thread that is about to access lines publishes
// the word, and a requester that revokes a right to them reads it.
#pragma once

#include <cstdint>

#include "memory/checked_memory.h"

namespace multigrain {

// No line's number reaches the bit that marks a hazard over all lines.
static_assert((uint64_t{1} << (MG_FINE_VIEW_SHIFT - MG_FINE_MIN_LINE_SHIFT)) <= MG_FINE_HAZARD_ALL);

constexpr uint64_t make_hazard(uint64_t first_line, uint64_t lines, bool stores) {
  return first_line + lines * MG_FINE_HAZARD_LINE + (stores ? MG_FINE_HAZARD_STORES : 0);
}

// Returns whether the hazard covers one of the `lines` lines from `first` on. Hazards of loads count only if `loads` is
// true. A cleared hazard (0) covers nothing.
constexpr bool covers(uint64_t hazard, uint64_t first, uint64_t lines, bool loads) {
  if (hazard == 0 || (!loads && (hazard & MG_FINE_HAZARD_STORES) == 0)) return false;
  if ((hazard & MG_FINE_HAZARD_ALL) != 0) return true;
  const uint64_t begin = hazard & (MG_FINE_HAZARD_LINE - 1);
  const uint64_t end = begin + (hazard & ~MG_FINE_HAZARD_STORES) / MG_FINE_HAZARD_LINE;
  return begin < first + lines && first < end;
}
constexpr bool covers(uint64_t hazard, uint64_t line, bool loads) {
  return covers(hazard, line, 1, loads);
}

}  // namespace multigrain
