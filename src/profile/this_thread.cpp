#include "profile/this_thread.h"

namespace multigrain {
namespace {

// Threads that are not measured share this: its sums are never read, and additions that get lost in it do not matter.
constinit ProcessorProfile g_unmeasured;

}  // namespace

constinit thread_local ProcessorProfile* internal::t_profile = &g_unmeasured;

void set_this_profile(ProcessorProfile& profile) {
  internal::t_profile = &profile;
  timeline::begin_track();
}

void give_back_this_profile() {
  internal::t_profile = &g_unmeasured;
  timeline::end_track();
}

}  // namespace multigrain
