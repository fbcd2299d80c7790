// The profile of the thread that runs.
#pragma once

#include "profile/profile.h"

namespace multigrain {

// The calling thread's profile; of a thread that was never given one, one that nobody reads.
// Async-signal-safe: the thread-local is of the initial-exec kind, so that reading it cannot allocate.
ProcessorProfile& this_profile();

// Gives the calling thread a profile, which outlives the thread.
void set_this_profile(ProcessorProfile& profile);

}  // namespace multigrain
