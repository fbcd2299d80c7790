// Maps System V segments of shared memory into areas of the guest, on the nodes of one machine.
//
// Every node attaches the segment for itself, by its number, so shm_nattch counts nodes as well. A segment that has
// been removed can be attached as long as the home has it, which Linux allows.
#pragma once

#include <cstdint>

#include "guest/areas.h"

namespace multigrain::guest::segments {

// Area::file has this bit for a part of a segment; the numbers of other files are below it.
inline constexpr uint32_t kMark = uint32_t{1} << 31;

inline bool is_segment(uint32_t file) {
  return (file & kMark) != 0;
}
inline uint32_t file_of(int segment) {
  return kMark | static_cast<uint32_t>(segment);
}

// Maps what the area has of its segment, over whatever this process has there. Returns 0 or -errno.
long map(const Area& area);

}  // namespace multigrain::guest::segments
