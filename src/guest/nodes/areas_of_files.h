// Knows where files are mapped on this node. The fault handlers ask, since the protocol has nothing to do
// with these addresses.
#pragma once

#include <vector>

#include "base/lock_guard.h"
#include "base/spin_lock.h"
#include "guest/areas.h"

namespace multigrain::guest {

class AreasOfFiles {
 public:
  explicit AreasOfFiles(const std::vector<Range>& allowed) : areas_(allowed, allowed.back()) {}

  void add(const Area& area) MG_EXCLUDES(lock_) {
    const LockGuard hold(lock_);
    areas_.map(area);
  }
  void remove(Range range) MG_EXCLUDES(lock_) {
    const LockGuard hold(lock_);
    areas_.unmap(range);
  }
  [[nodiscard]] bool has(uint64_t address) const MG_EXCLUDES(lock_) {
    const LockGuard hold(lock_);
    return !areas_.around(address).empty();
  }
  // Returns whether the address is in a mapping that other processes can share.
  [[nodiscard]] bool has_shared(uint64_t address) const MG_EXCLUDES(lock_) {
    const LockGuard hold(lock_);
    const std::vector<Area> found = areas_.around(address);
    return !found.empty() && found.front().is_shared;
  }

 private:
  mutable SpinLock lock_;
  Areas areas_ MG_GUARDED_BY(lock_);
};

}  // namespace multigrain::guest
