#include "guest/nodes/deputy.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guest/calls.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/package.h"
#include "guest/signals.h"

namespace multigrain::guest {
namespace {

// Returns whether a request is served although a signal is on its way to the thread: the thread needs it to act
// on the signal.
bool is_needed_for_signals(const Request& request) {
  switch (request.kind) {
    case RequestKind::kAction:
    case RequestKind::kArea:
    case RequestKind::kMask:
    case RequestKind::kDefault:
    case RequestKind::kCopy:
    case RequestKind::kEnd:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Deputy::block_all() {
  const uint64_t all = ~(uint64_t{1} << (SIGSEGV - 1) | uint64_t{1} << (SIGBUS - 1) | uint64_t{1} << (SIGSYS - 1));
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, kMaskSize);
}

siginfo_t Deputy::take_signal() {
  block_all();
  siginfo_t info{};
  if (block_.pending_signal > 0) info = block_.pending_info;
  block_.pending_signal = 0;
  if (info.si_signo == 0) info = take_held(~block_.hidden_mask, block_);
  if (info.si_signo != 0)
    ++sent_;
  else
    apply_mask();
  return info;
}

void Deputy::apply_mask() {
  constexpr uint64_t kHost = uint64_t{1} << (SIGSEGV - 1) | uint64_t{1} << (SIGBUS - 1) | uint64_t{1} << (SIGSYS - 1);
  block_.hidden_mask = mask_ & kHost;
  if ((held_signals(block_) & ~mask_) != 0 && block_.pending_signal == 0) block_.pending_signal = -1;
  const uint64_t own = mask_ & ~kHost;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &own, nullptr, kMaskSize);
}

long Deputy::carry_out_in_order(const Request& request, std::span<const std::byte> data,
                                std::vector<std::byte>& answer) {
  if (has_sent_signal() && !is_needed_for_signals(request)) return kRestart;
  return carry_out(request, data, answer);
}

long Deputy::carry_out(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) {
  switch (request.kind) {
    case RequestKind::kCall:
      return call(request);
    case RequestKind::kAction:
      return set_action(request, data, answer);
    case RequestKind::kMask:
      return set_mask(request.arguments[0], request.arguments[1] != 0, static_cast<uint32_t>(request.arguments[2]));
    case RequestKind::kDefault:
      act_by_default(static_cast<int>(request.number), request.arguments[0] != 0);
      return 0;
    case RequestKind::kTakeOver:
      return take_over(data);
    default:
      panic("a request of a thread that is away, which nobody makes", static_cast<uint64_t>(request.kind));
  }
}

long Deputy::call(const Request& request) {
  if (is_about_hosts_descriptor(request.number, request.arguments)) return -EBADF;
  auto& context = *new (context_) ucontext_t{};
  guest::set_mask(context, block_, mask_);
  Call made{.number = request.number, .arguments = {}, .context = context, .thread = block_};
  std::ranges::copy(request.arguments, made.arguments);
  return carry_out_of_table(made);
}

long Deputy::set_action(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) {
  const auto signal = static_cast<int>(request.number);
  if (signal < 1 || signal > kSignals) return -EINVAL;
  const SystemAction before = block_.actions->action(signal);
  const auto bytes = std::as_bytes(std::span(&before, 1));
  answer.assign(bytes.begin(), bytes.end());
  SystemAction wanted;
  if (data.size() != sizeof wanted) return 0;
  std::memcpy(&wanted, data.data(), sizeof wanted);
  return block_.actions->set(signal, wanted);
}

long Deputy::set_mask(uint64_t mask, bool must_take, uint32_t answered) {
  if (answered - answered_ > sent_ - answered_)
    panic("a thread has acted on a signal that it was not sent, its number", static_cast<uint64_t>(tid_));
  answered_ = answered;
  // The thread must act first on a signal that came before.
  if (!must_take && (has_sent_signal() || block_.pending_signal != 0)) return kRestart;
  mask_ = mask;
  if (!has_sent_signal() && block_.pending_signal <= 0) apply_mask();
  return 0;
}

// The signal's action is the default, which the system takes, except for those signals for which it always has
// the host's handler.
void Deputy::act_by_default(int signal, bool is_forced) {
  if (signal < 1 || signal > kSignals) panic("a signal that there is not", static_cast<uint64_t>(signal));
  if (is_forced || ends_process(signal)) {
    // A process that was forked has no nodes, and no statistics.
    if (guest::host().cluster != nullptr) guest::host().cluster->process_ends(128 + signal);
    die_of(signal);
  }
  syscall(SYS_tgkill, getpid(), tid_, signal);
  const uint64_t others = ~(uint64_t{1} << (signal - 1));
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &others, nullptr, kMaskSize);
  block_all();
}

long Deputy::take_over(std::span<const std::byte> data) {
  ThreadToTakeOver thread;
  if (data.size() <= sizeof thread) panic("a thread to take over without its context");
  std::memcpy(&thread, data.data(), sizeof thread);
  ucontext_t& context = restore_context(data.subspan(sizeof thread), context_);
  block_.guest_fs = thread.thread_pointer;
  block_.clear_tid = thread.clear_tid;
  block_.robust_list = thread.robust_list;
  // The kernel needs the list, too, for a process that is killed.
  syscall(SYS_set_robust_list, thread.robust_list, 3 * sizeof(uint64_t));
  block_.alternate_stack = thread.alternate_stack;
  block_.processor = thread.processor;
  block_.node = kHome.value;
  for (const siginfo_t& held : thread.held)
    if (held.si_signo != 0) hold(held, block_);
  if (thread.gs_is_guests) {
    block_.gs_is_guests = true;
    asm volatile("wrgsbase %0" : : "r"(thread.gs));
  }
  guest::set_mask(context, block_, thread.mask);
  takes_over_ = true;
  return 0;
}

}  // namespace multigrain::guest
