#include "profile/this_thread.h"

namespace multigrain {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local ProcessorProfile* t_profile = nullptr;

// Threads that are not measured share this: its sums are never read, and additions that get lost in it do not matter.
constinit ProcessorProfile g_unmeasured;

}  // namespace

ProcessorProfile& this_profile() {
  return t_profile != nullptr ? *t_profile : g_unmeasured;
}

void set_this_profile(ProcessorProfile& profile) {
  t_profile = &profile;
}

void give_back_this_profile() {
  t_profile = nullptr;
}

}  // namespace multigrain
