// Carries out the calls about memory, most of which are the address space's.
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "guest/call_functions.h"
#include "guest/host.h"

namespace multigrain::guest::call {

long map(Call& call) {
  const auto& argument = call.arguments;
  return host().space.map(argument[0], argument[1], call.integer(2), call.integer(3), call.integer(4), argument[5],
                          call.thread.node);
}
long unmap(Call& call) {
  return host().space.unmap(call.arguments[0], call.arguments[1]);
}
long protect(Call& call) {
  return host().space.protect(call.arguments[0], call.arguments[1], call.integer(2));
}
long protect_with_key(Call& call) {
  return host().space.protect(call.arguments[0], call.arguments[1], call.integer(2), call.integer(3));
}
// Locks the guest's areas alone: the host's own memory must not be locked, least of all what the nodes of a forked
// child's parent have reserved.
long lock_all(Call& call) MG_NO_THREAD_SAFETY_ANALYSIS {
  const int flags = call.integer(0);
  if (!host().has_mappings_of_nodes || (flags & MCL_CURRENT) == 0) return pass(call);
  if ((flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) != 0) return -EINVAL;
  AddressSpace& space = host().space;
  space.lock();
  const std::vector<Area> areas = space.locked_areas();
  space.unlock();
  for (const Area& area : areas) {
    if ((area.rights & PROT_READ) == 0) continue;
    const auto how = static_cast<unsigned>((flags & MCL_ONFAULT) != 0 ? MLOCK_ONFAULT : 0);
    if (mlock2(reinterpret_cast<void*>(area.range.begin), area.range.end - area.range.begin, how) != 0) return -errno;
  }
  if ((flags & MCL_FUTURE) == 0) return 0;
  return syscall(SYS_mlockall, flags & ~MCL_CURRENT) == 0 ? 0 : -errno;
}

long remap(Call& call) {
  const auto& argument = call.arguments;
  return host().space.remap(argument[0], argument[1], argument[2], call.integer(3), argument[4], call.thread.node);
}
long set_break(Call& call) {
  return host().space.set_break(call.arguments[0]);
}
long advise(Call& call) {
  // Of all advice only this changes what is in memory, also where that is code.
  if (call.integer(2) != MADV_DONTNEED) return pass(call);
  return host().space.advise(call.arguments[0], call.arguments[1], call.integer(2));
}
long barrier(Call& call) {
  // The host may have registered for a barrier (call_sites.cpp) for which the guest has not.
  static std::atomic<bool> is_registered{false};
  constexpr uint64_t kTellRegistrations = 1 << 9;  // MEMBARRIER_CMD_GET_REGISTRATIONS
  constexpr uint64_t kUse = MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE;
  constexpr uint64_t kRegister = MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;
  const uint64_t command = call.arguments[0] & 0xffff'ffff;
  if (command == kUse && call.arguments[1] == 0 && !is_registered) return -EPERM;
  const long result = pass(call);
  if (command == kRegister && result == 0) is_registered = true;
  if (command == kTellRegistrations && result > 0 && !is_registered) return result & ~static_cast<long>(kRegister);
  return result;
}
long attach(Call& call) {
  return host().space.attach(call.integer(0), call.arguments[1], call.integer(2));
}
long detach(Call& call) {
  return host().space.detach(call.arguments[0]);
}

}  // namespace multigrain::guest::call
