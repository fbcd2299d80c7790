// The kWords segment of a node: 64-bit words for remote atomics, which components divide among themselves.
//
// Each component declares its ranges next to its code, as words::Range; src/runtime/ranges.cpp checks at compile time
// that they do not overlap. Offsets and sizes are in bytes. The segment is sparse: what is not touched costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/protocols.h"

namespace multigrain::words {

struct Range {
  uint64_t begin;
  uint64_t bytes;
  [[nodiscard]] constexpr uint64_t end() const { return begin + bytes; }
};

// This range is free for tests and measurements.
inline constexpr Range kTestWords{0, 4096};

// The length of the segment on every node: it reaches to the end of the last range.
inline constexpr uint64_t kBytes = (uint64_t{331} << 18) + 4096 + 1085440;
static_assert(kBytes % 4096 == 0);

// The size of the smallest page, bytes.
inline constexpr uint64_t kMinPageBytes = 4096;

// Returns how long the kLines segment of a region is: it has a word for each line, if lines have the smallest size.
constexpr uint64_t line_table_bytes(uint64_t region_bytes) {
  return region_bytes / kMinLineSize * sizeof(uint64_t);
}

// Returns how long the kPages segment of a region is: it has a word for each page, if pages have the smallest size.
constexpr uint64_t page_table_bytes(uint64_t region_bytes) {
  return region_bytes / kMinPageBytes * sizeof(uint64_t);
}

}  // namespace multigrain::words
