// These are clocks for measuring: they count nanoseconds that all nodes of one machine share, or ticks of a processor.
#pragma once

#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace multigrain {

using Nanoseconds = uint64_t;

// Returns the time of one of the system's clocks. Async-signal-safe.
inline Nanoseconds clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Returns CLOCK_MONOTONIC through the vDSO. It takes about 20 ns, is async-signal-safe, and is the same on every node
// of this host.
inline Nanoseconds monotonic_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}

// Sleeps for that time, or until a signal. Async-signal-safe; leaves errno as it is.
void sleep_ns(Nanoseconds duration);

// Returns the cycles of the time-stamp counter, for bounding spins and for category switches, where 20 ns is too much.
inline uint64_t ticks() {
  return __rdtsc();
}

// Returns how many ticks of the time-stamp counter a microsecond has, measured once at start-up against
// CLOCK_MONOTONIC.
double ticks_per_us();

// Tells the core that this is a spin loop.
inline void cpu_relax() {
  _mm_pause();
}

}  // namespace multigrain
