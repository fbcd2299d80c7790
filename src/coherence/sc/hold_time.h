// A page's record has room for a part of the time at which a hold ends: the last 24 bits, in units of 64 ns. They come
// again after 1.07 s.
//
// So a hold that ended long ago can seem to be going on: if the time of its end, modulo 1.07 s, is less than the
// longest hold away. Of moments at random that is one in 36,000, and the hold seems to be over at most the longest hold
// later. That is harmless. How long a hold is, is a matter of progress and not of coherence (sc.md, "The hold"): a page
// may be held for any time that has an end. A hold that is going on is never taken for one that is over.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "coherence/page_hold.h"

namespace multigrain::sc {

inline constexpr Nanoseconds kUnitOfHold = 64;
inline constexpr unsigned kBitsOfHold = 24;
inline constexpr uint32_t kLastOfHold = (uint32_t{1} << kBitsOfHold) - 1;

// Returns what a record keeps of the time (monotonic_ns()) at which a hold ends.
[[nodiscard]] constexpr uint32_t kept_of(Nanoseconds end) {
  return static_cast<uint32_t>(end / kUnitOfHold) & kLastOfHold;
}
// Returns the time of which a record keeps this, to the unit, if that is `now` or at most the longest hold later.
// Otherwise it was before, and the result is 0.
[[nodiscard]] constexpr Nanoseconds end_from(uint32_t kept, Nanoseconds now) {
  const uint32_t left = (kept - kept_of(now)) & kLastOfHold;
  return left <= kLongestHold / kUnitOfHold + 1 ? now + left * kUnitOfHold : 0;
}

}  // namespace multigrain::sc
