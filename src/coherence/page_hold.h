// A page that threads of a node have been granted stays there until each of them has had time to make its access: that is the
// hold ([Mirage]'s Delta). The protocols that keep memory sequentially consistent by pages have it.
//
// A hold is long enough for a thread to leave the fault handler and to make its access. An instruction may need two
// pages that two nodes want in opposite order. So the length differs from one time to the next, and at some time one of
// the nodes has both pages.
#pragma once

#include "base/clock.h"
#include "profile/virtual_time.h"

namespace multigrain {

inline constexpr Nanoseconds kShortestHold = 10'000;
inline constexpr Nanoseconds kLongestHold = 30'000;

// Returns the time by which holds are measured: in counted time that of what the calling thread does.
inline Nanoseconds time_of_holds() {
  return virtual_time::is_counted() ? virtual_time::stamp() : monotonic_ns();
}

inline Nanoseconds length_of_hold() {
  // The time-stamp counter has another value each time; the multiplication spreads its low bits. Nodes that want two pages in
  // opposite order hold them from different times on in counted time, too.
  const uint64_t mixed = (virtual_time::is_counted() ? virtual_time::stamp() : ticks()) * 0x9e3779b97f4a7c15u;
  return kShortestHold + (mixed >> 32) % (kLongestHold - kShortestHold);
}

}  // namespace multigrain
