// Finds the profile of the calling thread.
#pragma once

#include "profile/profile.h"

namespace multigrain {

namespace internal {
// The calling thread's profile. Initial-exec, so that reading it cannot allocate.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ProcessorProfile* t_profile;
}  // namespace internal

// Returns the calling thread's profile; for a thread that was never given one, a profile that is never read.
// Async-signal-safe.
inline ProcessorProfile& this_profile() {
  return *internal::t_profile;
}

// Gives the calling thread a profile, which outlives the thread, or lives until the thread gives it back; and, if time
// lines are on, a track.
void set_this_profile(ProcessorProfile& profile);
// From now on the calling thread is not measured.
void give_back_this_profile();

// Counts in the calling thread's profile.
inline void count(Counter counter, uint64_t n = 1) {
  this_profile().count(counter, n);
}

}  // namespace multigrain
