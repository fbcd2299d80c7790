// The guest's limits on its address space and on its data (RLIMIT_AS, RLIMIT_DATA), which the host of a guest on
// several nodes keeps itself. With the kernel's limits, everything that the host has reserved would count, which is far
// more than any guest has, and the host would fail.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <vector>

#include "base/spin_lock.h"
#include "guest/areas.h"

namespace multigrain::guest {

class SpaceLimits {
 public:
  // Returns whether a limit is one of those that are kept here, in a process of a guest that has mappings of nodes.
  static bool has(int resource) { return resource == RLIMIT_AS || resource == RLIMIT_DATA; }

  [[nodiscard]] rlimit get(int resource) const MG_EXCLUDES(lock_);
  // Does what setrlimit() does. Returns 0 or -errno.
  long set(int resource, const rlimit& wanted) MG_EXCLUDES(lock_);

  // Returns 0, or -ENOMEM if the guest may not have `added` beside these areas, of which it replaces some.
  [[nodiscard]] long check(const std::vector<Area>& areas, const Area& added) const MG_EXCLUDES(lock_);
  [[nodiscard]] bool is_limited() const MG_EXCLUDES(lock_);

  // While an object exists, the kernel has these limits, for the program that is executed.
  class ForExec {
   public:
    explicit ForExec(const SpaceLimits& limits);
    ~ForExec();
    ForExec(const ForExec&) = delete;
    ForExec& operator=(const ForExec&) = delete;

   private:
    const bool are_set_;
    rlimit space_before_{};
    rlimit data_before_{};
  };

 private:
  mutable SpinLock lock_;
  rlimit space_ MG_GUARDED_BY(lock_){RLIM_INFINITY, RLIM_INFINITY};
  rlimit data_ MG_GUARDED_BY(lock_){RLIM_INFINITY, RLIM_INFINITY};
};

}  // namespace multigrain::guest
