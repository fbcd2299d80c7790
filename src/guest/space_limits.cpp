#include "guest/space_limits.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/lock_guard.h"

namespace multigrain::guest {
namespace {

bool may_raise_limits() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2]{};
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_SYS_RESOURCE & 1) != 0;
}

uint64_t bytes_of(Range range) {
  return range.end - range.begin;
}

// Returns whether the kernel counts the area as data.
bool is_data(const Area& area) {
  return !area.is_shared && (area.rights & PROT_WRITE) != 0;
}

}  // namespace

rlimit SpaceLimits::get(int resource) const {
  const LockGuard hold(lock_);
  return resource == RLIMIT_AS ? space_ : data_;
}

long SpaceLimits::set(int resource, const rlimit& wanted) {
  if (wanted.rlim_cur > wanted.rlim_max) return -EINVAL;
  const LockGuard hold(lock_);
  rlimit& limit = resource == RLIMIT_AS ? space_ : data_;
  if (wanted.rlim_max > limit.rlim_max && !may_raise_limits()) return -EPERM;
  limit = wanted;
  return 0;
}

bool SpaceLimits::is_limited() const {
  const LockGuard hold(lock_);
  return space_.rlim_cur != RLIM_INFINITY || data_.rlim_cur != RLIM_INFINITY;
}

long SpaceLimits::check(const std::vector<Area>& areas, const Area& added) const {
  uint64_t space = bytes_of(added.range);
  uint64_t data = is_data(added) ? space : 0;
  for (const Area& area : areas) {
    const uint64_t begin = std::max(area.range.begin, added.range.begin);
    const uint64_t end = std::min(area.range.end, added.range.end);
    const uint64_t rest = bytes_of(area.range) - (begin < end ? end - begin : 0);
    space += rest;
    if (is_data(area)) data += rest;
  }
  const LockGuard hold(lock_);
  const bool is_too_much = space > space_.rlim_cur || (is_data(added) && data > data_.rlim_cur);
  return is_too_much ? -ENOMEM : 0;
}

SpaceLimits::ForExec::ForExec(const SpaceLimits& limits) : are_set_(limits.is_limited()) {
  if (!are_set_) return;
  const rlimit space = limits.get(RLIMIT_AS);
  const rlimit data = limits.get(RLIMIT_DATA);
  prlimit(0, RLIMIT_AS, &space, &space_before_);
  prlimit(0, RLIMIT_DATA, &data, &data_before_);
}

SpaceLimits::ForExec::~ForExec() {
  if (!are_set_) return;
  setrlimit(RLIMIT_AS, &space_before_);
  setrlimit(RLIMIT_DATA, &data_before_);
}

}  // namespace multigrain::guest
