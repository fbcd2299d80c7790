// Carries out the calls about signals.
#include <cerrno>

#include "guest/call_functions.h"
#include "guest/entry.h"
#include "guest/host.h"

namespace multigrain::guest::call {
namespace {

// Passes a call that has the mask at this address, or none.
long pass_masked(Call& call, uint64_t address) {
  uint64_t mask = 0;
  const bool has_mask = address != 0 && read_guest(address, mask);
  const long result = pass(call);
  // The signal that interrupted the call came under that mask.
  if (result == -EINTR && has_mask && call.thread.pending_signal > 0) call.thread.temporary_mask = mask;
  return result;
}

}  // namespace

long signal_action(Call& call) {
  const int signal = call.integer(0);
  if (call.arguments[3] != kMaskSize || signal < 1 || signal > kSignals) return -EINVAL;
  SystemAction wanted;
  if (call.arguments[1] != 0) {
    if (!read_guest(call.arguments[1], wanted)) return -EFAULT;
    if (signal == SIGKILL || signal == SIGSTOP) return -EINVAL;
  }
  const SystemAction before = call.thread.actions->action(signal);
  if (call.arguments[1] != 0)
    if (const long result = call.thread.actions->set(signal, wanted); result != 0) return result;
  if (call.arguments[2] != 0 && !write_guest(call.arguments[2], before)) return -EFAULT;
  return 0;
}

long signal_mask(Call& call) {
  if (call.arguments[3] != kMaskSize) return -EINVAL;
  const uint64_t before = mask_of(call.context, call.thread);
  if (call.arguments[1] != 0) {
    uint64_t wanted = 0;
    if (!read_guest(call.arguments[1], wanted)) return -EFAULT;
    switch (call.integer(0)) {
      case SIG_BLOCK:
        wanted |= before;
        break;
      case SIG_UNBLOCK:
        wanted = before & ~wanted;
        break;
      case SIG_SETMASK:
        break;
      default:
        return -EINVAL;
    }
    set_mask(call.context, call.thread, wanted);
  }
  if (call.arguments[2] != 0 && !write_guest(call.arguments[2], before)) return -EFAULT;
  return 0;
}

long signal_pending(Call& call) {
  const uint64_t size = call.arguments[1];
  const long result = pass(call);
  uint64_t set = 0;
  if (result != 0 || size != kMaskSize || !read_guest(call.arguments[0], set)) return result;
  set |= held_signals(call.thread);
  return write_guest(call.arguments[0], set) ? 0 : -EFAULT;
}

long signal_wait(Call& call) {
  uint64_t set = 0;
  if (call.arguments[3] != kMaskSize) return -EINVAL;
  if (!read_guest(call.arguments[0], set)) return -EFAULT;
  // A signal that is held may have interrupted the wait.
  for (int attempt = 0;; ++attempt) {
    const siginfo_t held = take_held(set, call.thread);
    if (held.si_signo != 0) {
      if (call.thread.pending_signal < 0) call.thread.pending_signal = 0;
      if (call.arguments[1] != 0 && !write_guest(call.arguments[1], held)) return -EFAULT;
      return held.si_signo;
    }
    if (attempt == 1) return -EINTR;
    const long result = pass(call);
    if (result != -EINTR && result != kRestart) return result;
    if ((held_signals(call.thread) & set) == 0) return result;
  }
}

long masked_first(Call& call) {
  return pass_masked(call, call.arguments[0]);
}
long masked_fourth(Call& call) {
  return pass_masked(call, call.arguments[3]);
}
long masked_fifth(Call& call) {
  return pass_masked(call, call.arguments[4]);
}
long masked_indirectly(Call& call) {
  struct {
    uint64_t mask, size;
  } indirect{};
  const bool has_one = call.arguments[5] != 0 && read_guest(call.arguments[5], indirect);
  return pass_masked(call, has_one ? indirect.mask : 0);
}

long signal_return(Call& call) {
  call.replaces_context = true;
  return_from_handler(call.context, call.thread);
  return 0;
}

long signal_stack(Call& call) {
  stack_t wanted{};
  stack_t before{};
  if (call.arguments[0] != 0 && !read_guest(call.arguments[0], wanted)) return -EFAULT;
  const long result =
      set_alternate_stack(call.context, call.thread, call.arguments[0] != 0 ? &wanted : nullptr, &before);
  if (result == 0 && call.arguments[1] != 0 && !write_guest(call.arguments[1], before)) return -EFAULT;
  return result;
}

}  // namespace multigrain::guest::call
