#include "guest/signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "guest/calls.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"

namespace multigrain::guest {
namespace {

constexpr uint64_t kRestorerFlag = 0x04000000;           // SA_RESTORER
constexpr int kAutoDisarm = static_cast<int>(1u << 31);  // SS_AUTODISARM
constexpr size_t kRedZone = 128;
constexpr size_t kMinimalStack = 2048;  // the kernel's MINSIGSTKSZ

constexpr uint64_t bit(int signal) {
  return uint64_t{1} << (signal - 1);
}

// The host must always be able to receive these signals.
constexpr uint64_t kHidden = bit(SIGSYS) | bit(SIGSEGV) | bit(SIGBUS);
constexpr uint64_t kNeverBlocked = bit(SIGKILL) | bit(SIGSTOP);
// While a handler of the host runs, only faults of its own interrupt it.
constexpr uint64_t kAllButFaults = ~(bit(SIGSEGV) | bit(SIGBUS) | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP));
// Of these the host's handlers need their own. SIGILL, SIGFPE and SIGTRAP can be sent by a process, and must wait then
// while another signal is taken, since one alone is recorded.
constexpr uint64_t kAllButFaultsOfPages = ~(bit(SIGSEGV) | bit(SIGBUS));

bool is_address(uint64_t handler) {
  return handler != reinterpret_cast<uint64_t>(SIG_DFL) && handler != reinterpret_cast<uint64_t>(SIG_IGN);
}

long set_system_action(int signal, const SystemAction& action) {
  return syscall(SYS_rt_sigaction, signal, &action, nullptr, kMaskSize) == 0 ? 0 : -errno;
}

// Returns the host's handler that stands in for a guest's. Only SIGSYS lets other signals in while its handler runs,
// because system calls take long.
SystemAction stand_in(int signal, uint64_t guest_flags) {
  const uint64_t kept = guest_flags & (SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT);
  return {.handler = reinterpret_cast<uint64_t>(handler_address()),
          .flags = kept | SA_SIGINFO | SA_ONSTACK | SA_NODEFER | kRestorerFlag,
          .restorer = reinterpret_cast<uint64_t>(restorer_address()),
          .mask = signal == SIGSYS ? 0 : kAllButFaultsOfPages};
}

// The kernel writes this onto the stack of a handler: struct rt_sigframe of arch/x86/include/asm/sigframe.h.
constexpr size_t kContextSize = offsetof(ucontext_t, uc_sigmask) + kMaskSize;
struct Frame {
  uint64_t restorer;
  std::byte context[kContextSize];
  siginfo_t info;
};
static_assert(sizeof(Frame) == 8 + kContextSize + 128);

// The end of the legacy area of the floating-point state says how large the whole state is [struct _fpx_sw_bytes].
constexpr size_t kLegacyState = 512;
constexpr size_t kSoftwareBytes = 464;
constexpr uint32_t kExtendedMagic = 0x46505853;
// The header of the extended state says which components are not in their initial state.
constexpr size_t kHeader = kLegacyState;

struct SoftwareBytes {
  uint32_t magic;
  uint32_t extended_size;
  uint64_t components;
  uint32_t state_size;
  uint32_t unused[7];
};
static_assert(kSoftwareBytes + sizeof(SoftwareBytes) == kLegacyState);

SoftwareBytes software_bytes(const std::byte* state) {
  SoftwareBytes bytes;
  std::memcpy(&bytes, state + kSoftwareBytes, sizeof bytes);
  return bytes;
}

size_t size_of_state(const std::byte* state) {
  const SoftwareBytes bytes = software_bytes(state);
  return bytes.magic == kExtendedMagic ? bytes.extended_size : kLegacyState;
}

std::byte* state_of(const ucontext_t& context) {
  return reinterpret_cast<std::byte*>(context.uc_mcontext.fpregs);
}

// Sets the initial state, with which a handler begins.
void reset_state(std::byte* state) {
  constexpr size_t kControlStatus = 24;
  constexpr uint32_t kInitialControlStatus = 0x1f80;
  constexpr uint16_t kInitialControlWord = 0x37f;
  if (software_bytes(state).magic == kExtendedMagic)
    std::memset(state + kHeader, 0, sizeof(uint64_t));
  else
    std::memset(state, 0, kSoftwareBytes);
  std::memcpy(state, &kInitialControlWord, sizeof kInitialControlWord);
  std::memcpy(state + kControlStatus, &kInitialControlStatus, sizeof kInitialControlStatus);
}

bool is_on(const stack_t& stack, uint64_t address) {
  // As for the kernel, no thread is on a stack with SS_AUTODISARM, and a stack pointer at the very end of a stack
  // is on it.
  return (stack.ss_flags & kAutoDisarm) == 0 && address > reinterpret_cast<uint64_t>(stack.ss_sp) &&
         address - reinterpret_cast<uint64_t>(stack.ss_sp) <= stack.ss_size;
}

bool is_enabled(const stack_t& stack) {
  return stack.ss_size != 0;
}

// Writes the frame. Returns false if the guest's stack has no room for it.
bool write_frame(const SystemAction& action, const siginfo_t& info, ucontext_t& context, ThreadBlock& thread,
                 uint64_t& frame_address) {
  auto& registers = context.uc_mcontext.gregs;
  stack_t& stack = thread.alternate_stack;
  const auto before = static_cast<uint64_t>(registers[REG_RSP]);
  uint64_t at = before - kRedZone;
  const bool was_on = is_on(stack, before);
  const bool switches = (action.flags & SA_ONSTACK) != 0 && is_enabled(stack) && !was_on;
  const uint64_t low = reinterpret_cast<uint64_t>(stack.ss_sp);
  if (switches) at = low + stack.ss_size;

  const std::byte* const state = state_of(context);
  const size_t state_size = size_of_state(state);
  at = (at - state_size) & ~uint64_t{63};
  const uint64_t state_address = at;
  at = ((at - sizeof(Frame) + 8) & ~uint64_t{15}) - 8;
  if ((switches || was_on) && is_enabled(stack) && (at < low || at > low + stack.ss_size)) return false;
  frame_address = at;

  Frame frame{.restorer = action.restorer, .context = {}, .info = info};
  ucontext_t seen;
  std::memcpy(&seen, &context, kContextSize);
  seen.uc_link = nullptr;
  seen.uc_stack = stack;
  seen.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(state_address);
  const uint64_t mask = mask_of(context, thread);
  std::memcpy(&seen.uc_sigmask, &mask, sizeof mask);
  std::memcpy(frame.context, &seen, kContextSize);
  if (!write_guest(state_address, state, state_size) || !write_guest(at, frame)) return false;
  if ((stack.ss_flags & kAutoDisarm) != 0) stack = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  return true;
}

}  // namespace

bool ends_process(int signal) {
  switch (signal) {
    case SIGCHLD:
    case SIGCONT:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
    case SIGURG:
    case SIGWINCH:
      return false;
    default:
      return true;
  }
}

Status install_host_handlers() {
  // The host must see these faults of a thread away from home, since the guest's dispositions are at the home.
  for (const int signal : {SIGSYS, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, kKick})
    if (const long result = set_system_action(signal, stand_in(signal, 0)); result != 0)
      return fail_errno(static_cast<int>(-result), "cannot install the handlers of a guest's host");
  return {};
}

Status SignalActions::begin() {
  const LockGuard hold(mutex_);
  for (int signal = 1; signal <= kSignals; ++signal) {
    SystemAction& action = actions_[static_cast<size_t>(signal)];
    syscall(SYS_rt_sigaction, signal, nullptr, &action, kMaskSize);
    // A handler that is there now is the host's own affair.
    const bool is_hosts = is_address(action.handler);
    if (is_hosts) action = {};
    const SystemAction wanted = action_for_system(signal, action);
    if (is_hosts || wanted.handler != action.handler) set_system_action(signal, wanted);
  }
  for (const int signal : {SIGSYS, SIGSEGV, SIGBUS})
    if (const long result = set_system_action(signal, stand_in(signal, 0)); result != 0)
      return fail_errno(static_cast<int>(-result), "cannot install the handlers of a guest's host");
  return {};
}

SystemAction SignalActions::action_for_system(int signal, const SystemAction& action) const {
  if (is_address(action.handler)) return stand_in(signal, action.flags);
  const bool is_default = action.handler == reinterpret_cast<uint64_t>(SIG_DFL);
  const bool can_be_seen = signal != SIGKILL && signal != SIGSTOP && signal != kKick;
  return sees_ends_ && is_default && can_be_seen && ends_process(signal) ? stand_in(signal, 0) : action;
}

SystemAction SignalActions::action(int signal) {
  const LockGuard hold(mutex_);
  return actions_[static_cast<size_t>(signal)];
}

long SignalActions::set(int signal, const SystemAction& action) {
  const LockGuard hold(mutex_);
  if (is_hidden(signal)) {
    // The kernel must know which calls start again after the signal, in case another process sends it.
    if (is_address(action.handler)) set_system_action(signal, stand_in(signal, action.flags));
  } else {
    const long result = set_system_action(signal, action_for_system(signal, action));
    if (result != 0) return result;
  }
  SystemAction& kept = actions_[static_cast<size_t>(signal)];
  kept = action;
  kept.mask &= ~kNeverBlocked;
  return 0;
}

void SignalActions::restore(int signal) {
  const LockGuard hold(mutex_);
  const SystemAction& kept = actions_[static_cast<size_t>(signal)];
  set_system_action(signal, action_for_system(signal, kept));
}

uint64_t mask_of(const ucontext_t& context, const ThreadBlock& thread) {
  if (thread.away != nullptr) return thread.mask_away;
  uint64_t mask = 0;
  std::memcpy(&mask, &context.uc_sigmask, sizeof mask);
  return mask | thread.hidden_mask;
}

void set_mask(ucontext_t& context, ThreadBlock& thread, uint64_t mask) {
  mask &= ~kNeverBlocked;
  thread.hidden_mask = mask & kHidden;
  if (thread.away != nullptr) {
    thread.mask_away = mask;
    mask = kAllButFaults & ~kHidden & ~bit(kKick);
    std::memcpy(&context.uc_sigmask, &mask, sizeof mask);
    return;
  }
  mask &= ~kHidden;
  std::memcpy(&context.uc_sigmask, &mask, sizeof mask);
  if ((held_signals(thread) & ~thread.hidden_mask) != 0 && thread.pending_signal == 0) thread.pending_signal = -1;
}

bool is_hidden(int signal) {
  return (bit(signal) & kHidden) != 0;
}

void hold(const siginfo_t& info, ThreadBlock& thread) {
  if ((held_signals(thread) & bit(info.si_signo)) != 0) return;
  for (siginfo_t& slot : thread.held) {
    if (slot.si_signo != 0) continue;
    slot = info;
    return;
  }
}

siginfo_t take_held(uint64_t set, ThreadBlock& thread) {
  for (siginfo_t& slot : thread.held) {
    if (slot.si_signo == 0 || (bit(slot.si_signo) & set) == 0) continue;
    const siginfo_t taken = slot;
    slot = {};
    return taken;
  }
  return {};
}

uint64_t held_signals(const ThreadBlock& thread) {
  uint64_t set = 0;
  for (const siginfo_t& slot : thread.held)
    if (slot.si_signo != 0) set |= bit(slot.si_signo);
  return set;
}

long set_alternate_stack(const ucontext_t& context, ThreadBlock& thread, const stack_t* wanted, stack_t* before) {
  const bool is_on_it = is_on(thread.alternate_stack, static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RSP]));
  if (before != nullptr) {
    *before = thread.alternate_stack;
    if (!is_enabled(thread.alternate_stack))
      before->ss_flags = SS_DISABLE;
    else
      before->ss_flags = (before->ss_flags & kAutoDisarm) | (is_on_it ? SS_ONSTACK : 0);
  }
  if (wanted == nullptr) return 0;
  if (is_on_it) return -EPERM;
  const int mode = wanted->ss_flags & ~kAutoDisarm;
  if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0) return -EINVAL;
  if (mode == SS_DISABLE) {
    thread.alternate_stack = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    return 0;
  }
  if (wanted->ss_size < kMinimalStack) return -ENOMEM;
  thread.alternate_stack = *wanted;
  thread.alternate_stack.ss_flags = wanted->ss_flags;
  return 0;
}

void die_of(int signal) {
  set_system_action(signal, {});
  const uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kMaskSize);
  syscall(SYS_tgkill, getpid(), gettid(), signal);
  // Only a signal that does not end a process by default lets the thread come here.
  syscall(SYS_exit_group, 128 + signal);
  __builtin_unreachable();
}

void deliver(int signal, const siginfo_t& info, ucontext_t& context, ThreadBlock& thread) {
  const bool is_fault = info.si_code > 0 && info.si_code != SI_KERNEL
                            ? (bit(signal) & ~kAllButFaults) != 0
                            : info.si_code == SI_KERNEL && (signal == SIGSEGV || signal == SIGBUS || signal == SIGTRAP);
  const SystemAction action = thread.actions->action(signal);
  const bool is_blocked = (mask_of(context, thread) & bit(signal)) != 0;
  if (is_blocked && !is_fault && is_hidden(signal)) {
    hold(info, thread);
    return;
  }
  if (!is_address(action.handler) || (is_fault && is_blocked)) {
    if (action.handler == reinterpret_cast<uint64_t>(SIG_IGN) && !is_fault) return;
    if (thread.away != nullptr) {
      host().cluster->act_by_default_at_home(signal, is_fault, thread);
      return;
    }
    if (host().cluster != nullptr && ends_process(signal)) host().cluster->process_ends(128 + signal);
    // The kernel takes the default action: a fault happens again when the context continues, and a signal is sent
    // again, to come when this handler has returned.
    set_system_action(signal, {});
    if (!is_fault) syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, &info);
    return;
  }
  uint64_t frame = 0;
  if (!write_frame(action, info, context, thread, frame)) {
    // This is a segmentation fault, as for the kernel. The process dies of it if the guest has no handler
    // for it either.
    const SystemAction fault = thread.actions->action(SIGSEGV);
    const bool is_last =
        signal == SIGSEGV || !is_address(fault.handler) || (mask_of(context, thread) & bit(SIGSEGV)) != 0;
    if (is_last && thread.away != nullptr) host().cluster->act_by_default_at_home(SIGSEGV, true, thread);
    if (is_last) die_of(SIGSEGV);
    siginfo_t forced{};
    forced.si_signo = SIGSEGV;
    forced.si_code = SI_KERNEL;
    deliver(SIGSEGV, forced, context, thread);
    return;
  }
  if ((action.flags & SA_RESETHAND) != 0) {
    SystemAction reset = action;
    reset.handler = reinterpret_cast<uint64_t>(SIG_DFL);
    thread.actions->set(signal, reset);
  }
  // Signals that a call has blocked for its own time stay blocked while the handler runs; the frame has the
  // mask from before.
  uint64_t mask = thread.temporary_mask.value_or(mask_of(context, thread)) | action.mask;
  thread.temporary_mask.reset();
  if ((action.flags & SA_NODEFER) == 0) mask |= bit(signal);
  set_mask(context, thread, mask);
  reset_state(state_of(context));

  constexpr greg_t kDirection = 0x400, kTrap = 0x100, kResume = 0x10000;
  auto& registers = context.uc_mcontext.gregs;
  registers[REG_RIP] = static_cast<greg_t>(action.handler);
  registers[REG_RSP] = static_cast<greg_t>(frame);
  registers[REG_RDI] = signal;
  registers[REG_RSI] = static_cast<greg_t>(frame + offsetof(Frame, info));
  registers[REG_RDX] = static_cast<greg_t>(frame + offsetof(Frame, context));
  registers[REG_RAX] = 0;
  registers[REG_EFL] &= ~(kDirection | kTrap | kResume);
}

void return_from_handler(ucontext_t& context, ThreadBlock& thread) {
  auto& registers = context.uc_mcontext.gregs;
  // The handler's return has taken the restorer's address off the stack.
  const auto address = static_cast<uint64_t>(registers[REG_RSP]) - sizeof(uint64_t);
  Frame frame;
  if (!read_guest(address, frame)) die_of(SIGSEGV);
  ucontext_t wanted;
  std::memcpy(&wanted, frame.context, kContextSize);
  std::memcpy(&registers[REG_R8], &wanted.uc_mcontext.gregs[REG_R8], (REG_EFL + 1 - REG_R8) * sizeof(greg_t));

  std::byte* const state = state_of(context);
  if (wanted.uc_mcontext.fpregs == nullptr) {
    reset_state(state);
  } else {
    std::byte legacy[kLegacyState];
    const auto from = reinterpret_cast<uint64_t>(wanted.uc_mcontext.fpregs);
    if (!read_guest(from, legacy, sizeof legacy)) die_of(SIGSEGV);
    const size_t size = size_of_state(state);
    if (size_of_state(legacy) == size) {
      if (!read_guest(from, state, size)) die_of(SIGSEGV);
    } else {
      // Of a state that is not of the kernel's format, the legacy part counts, as for the kernel.
      SoftwareBytes bytes = software_bytes(legacy);
      bytes.magic = 0;
      std::memcpy(state, legacy, kLegacyState);
      std::memcpy(state + kSoftwareBytes, &bytes, sizeof bytes);
    }
  }
  uint64_t mask = 0;
  std::memcpy(&mask, &wanted.uc_sigmask, sizeof mask);
  set_mask(context, thread, mask);
  set_alternate_stack(context, thread, &wanted.uc_stack, nullptr);
}

std::vector<std::byte> save_context(const ucontext_t& context) {
  const size_t size = size_of_state(state_of(context));
  std::vector<std::byte> bytes(kContextSize + size);
  std::memcpy(bytes.data(), &context, kContextSize);
  std::memcpy(bytes.data() + kContextSize, state_of(context), size);
  return bytes;
}

ucontext_t& restore_context(std::span<const std::byte> bytes, std::span<std::byte> place) {
  constexpr size_t kState = (kContextSize + 63) / 64 * 64;
  MG_CHECK(bytes.size() > kContextSize + kLegacyState - 1 && kState + bytes.size() - kContextSize <= place.size(),
           bytes.size());
  std::memcpy(place.data(), bytes.data(), kContextSize);
  std::memcpy(place.data() + kState, bytes.data() + kContextSize, bytes.size() - kContextSize);
  auto& context = *reinterpret_cast<ucontext_t*>(place.data());
  context.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(place.data() + kState);
  return context;
}

ucontext_t& copy_context(const ucontext_t& context, ThreadBlock& to) {
  constexpr size_t kStatePlace = 1024;
  static_assert(kContextSize <= kStatePlace);
  const std::byte* const state = state_of(context);
  const size_t size = size_of_state(state);
  MG_CHECK(kStatePlace + size <= kFrameSize, size);
  std::memcpy(to.frame, &context, kContextSize);
  std::memcpy(to.frame + kStatePlace, state, size);
  auto& copy = *reinterpret_cast<ucontext_t*>(to.frame);
  copy.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(to.frame + kStatePlace);
  copy.uc_stack = to.stack();
  return copy;
}

std::optional<RegisterFormat> register_format(const ucontext_t& context) {
  const SoftwareBytes bytes = software_bytes(state_of(context));
  const bool fits = kGateState + bytes.extended_size <= kFrameSize && bytes.state_size < bytes.extended_size;
  if (bytes.magic != kExtendedMagic || !fits) return std::nullopt;
  return RegisterFormat{
      .extended_size = bytes.extended_size, .state_size = bytes.state_size, .components = bytes.components};
}

ucontext_t& gate_context(ThreadBlock& thread, const RegisterFormat& format) {
  auto& context = *reinterpret_cast<ucontext_t*>(thread.gate_frame);
  if (thread.gate_is_ready) return context;
  constexpr unsigned long kFlags = 7;  // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
  constexpr greg_t kCodeSegment = 0x33, kStackSegment = 0x2b;
  constexpr uint32_t kMagicAtEnd = 0x46505845;
  std::byte* const state = thread.gate_frame + kGateState;
  context.uc_flags = kFlags;
  context.uc_link = nullptr;
  context.uc_stack = thread.stack();
  context.uc_mcontext.gregs[REG_CSGSFS] = kCodeSegment | kStackSegment << 48;
  context.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(state);
  const SoftwareBytes bytes{.magic = kExtendedMagic,
                            .extended_size = format.extended_size,
                            .components = format.components,
                            .state_size = format.state_size,
                            .unused = {}};
  std::memcpy(state + kSoftwareBytes, &bytes, sizeof bytes);
  std::memcpy(state + format.state_size, &kMagicAtEnd, sizeof kMagicAtEnd);
  thread.gate_is_ready = true;
  return context;
}

BlockedSignals::BlockedSignals() {
  const uint64_t all = ~kHidden;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, kMaskSize);
}

BlockedSignals::~BlockedSignals() {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, kMaskSize);
}

}  // namespace multigrain::guest
