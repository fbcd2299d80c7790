// Finds the profile of the calling thread.
#pragma once

#include "profile/profile.h"

namespace multigrain {

// Returns the calling thread's profile; for a thread that was never given one, a profile that is never read.
// Async-signal-safe: the thread-local is of the initial-exec kind, so that reading it cannot allocate.
ProcessorProfile& this_profile();

// Gives the calling thread a profile, which outlives the thread, or lives until the thread gives it back.
void set_this_profile(ProcessorProfile& profile);
// From now on the calling thread is not measured.
void give_back_this_profile();

// Counts in the calling thread's profile.
inline void count(Counter counter, uint64_t n = 1) {
  this_profile().count(counter, n);
}

}  // namespace multigrain
