// What lines cost, where a page protocol compares that with its own costs.
#pragma once

#include <cstdint>

namespace multigrain {

// Estimates, in tenths of a microsecond.
struct LineCosts {
  static constexpr uint32_t kMiss = 3;
  // Returns what so many misses cost which bring so many lines, and as many misses of another node that wants the same.
  [[nodiscard]] static constexpr uint32_t of_two(uint32_t misses, uint32_t lines) { return 2 * kMiss * misses + lines; }
};

}  // namespace multigrain
