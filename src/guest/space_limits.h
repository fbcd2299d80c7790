// The guest's limits on its address space and on its data (RLIMIT_AS, RLIMIT_DATA), where the system's cannot be the guest's: those
// would count what the host of a guest on several nodes has reserved, which is far more than any guest, and make the host fail.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <vector>

#include "base/spin_lock.h"
#include "guest/areas.h"

namespace multigrain::guest {

class SpaceLimits {
 public:
  // Whether this is about a limit that is kept here, if the process is a guest's with mappings of nodes.
  static bool has(int resource) { return resource == RLIMIT_AS || resource == RLIMIT_DATA; }

  [[nodiscard]] rlimit get(int resource) const MG_EXCLUDES(lock_);
  // As setrlimit: 0 or -errno.
  long set(int resource, const rlimit& wanted) MG_EXCLUDES(lock_);

  // Whether the guest may have `added` beside these areas, of which it takes the place of some. 0 or -ENOMEM.
  [[nodiscard]] long check(const std::vector<Area>& areas, const Area& added) const MG_EXCLUDES(lock_);
  [[nodiscard]] bool is_limited() const MG_EXCLUDES(lock_);

  // While it exists, the system has these limits, for the program that is executed.
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
