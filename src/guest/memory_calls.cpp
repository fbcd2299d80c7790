#include <linux/membarrier.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>

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
long remap(Call& call) {
  const auto& argument = call.arguments;
  return host().space.remap(argument[0], argument[1], argument[2], call.integer(3), argument[4], call.thread.node);
}
long set_break(Call& call) {
  return host().space.set_break(call.arguments[0]);
}
long advise(Call& call) {
  // Of all advice only this changes what is there, of code too.
  if (call.integer(2) != MADV_DONTNEED) return pass(call);
  return host().space.advise(call.arguments[0], call.arguments[1], call.integer(2));
}
long barrier(Call& call) {
  // What the host has registered for (call_sites.cpp), the guest has not.
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
