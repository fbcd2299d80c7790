// Signals of a guest: what it has asked for, and handlers on its stacks.
//
// The system knows the guest's mask and dispositions, with four differences: a handler of the guest is represented by the
// host's (entry.h); SIGSYS, SIGSEGV and SIGBUS always have the host's, and are never blocked; the alternate stack is the
// host's; and a handler's frame is written by the host, in the system's format, where the system would have written it.
// So whatever the guest leaves to the system (stopping, ignoring, waiting, dying of a signal) is as it would be without
// the host.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

inline constexpr int kSignals = 64;

// By which a node interrupts one of its threads that is away from home, to hand it a signal. No signal of the guest's comes to
// such a node. It is not SIGSYS: the system keeps at most one of a kind, and a system call that the guest makes while one is
// waiting to be delivered would be lost.
inline constexpr int kKick = SIGURG;

// The system's sigaction, which is not the C library's.
struct SystemAction {
  uint64_t handler = 0;  // SIG_DFL, SIG_IGN or an address
  uint64_t flags = 0;
  uint64_t restorer = 0;
  uint64_t mask = 0;
};

// What the threads of a guest have asked for, for each signal.
class SignalActions {
 public:
  SignalActions() = default;
  // For a process that shares memory but not dispositions (vfork). The other must not change meanwhile.
  SignalActions(const SignalActions& other) MG_NO_THREAD_SAFETY_ANALYSIS : actions_(other.actions_) {}
  SignalActions& operator=(const SignalActions&) = delete;
  virtual ~SignalActions() = default;

  // Takes what this process ignores or leaves to the system, and installs the host's own handlers.
  Status begin() MG_EXCLUDES(mutex_);
  [[nodiscard]] virtual SystemAction action(int signal) MG_EXCLUDES(mutex_);
  // As rt_sigaction: 0 or -errno. The signal is valid and can be caught.
  virtual long set(int signal, const SystemAction& action) MG_EXCLUDES(mutex_);
  // Once more what set() installed, after the host's C library has put a handler of its own there.
  virtual void restore(int signal) MG_EXCLUDES(mutex_);

  // From now on the host has its handler for what the guest leaves to the system and the process dies of: it sees that end
  // coming. Before begin().
  void see_ends() { sees_ends_ = true; }

  void lock() MG_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() MG_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  // What the system is given in the place of the guest's action.
  [[nodiscard]] SystemAction action_for_system(int signal, const SystemAction& action) const;

  Mutex mutex_;
  std::array<SystemAction, kSignals + 1> actions_ MG_GUARDED_BY(mutex_);
  bool sees_ends_ = false;
};

// The guest's mask, as it will be when this context returns to it.
uint64_t mask_of(const ucontext_t& context, const ThreadBlock& thread);
void set_mask(ucontext_t& context, ThreadBlock& thread, uint64_t mask);

// As the system call of that name, of the thread whose context it is. 0 or -errno.
long set_alternate_stack(const ucontext_t& context, ThreadBlock& thread, const stack_t* wanted, stack_t* before);

// Whether a process dies of this signal by default.
bool ends_process(int signal);
// Whether the host must always receive this signal, so that the system cannot keep it for a guest that blocks it.
bool is_hidden(int signal);
// Keeps one of those, unless one of that number is kept already.
void hold(const siginfo_t& info, ThreadBlock& thread);
// A signal that is held and in the set; its slot is free then. si_signo 0: none.
siginfo_t take_held(uint64_t set, ThreadBlock& thread);
// The signals that are held.
uint64_t held_signals(const ThreadBlock& thread);

// Has the guest continue in its handler, which later returns to the context as it was; or does what else the guest's
// disposition asks for.
void deliver(int signal, const siginfo_t& info, ucontext_t& context, ThreadBlock& thread);

// As rt_sigreturn: the context becomes what the frame on the guest's stack says.
void return_from_handler(ucontext_t& context, ThreadBlock& thread);

// The process ends as one that the system ends by this signal does.
[[noreturn]] void die_of(int signal);

// A copy of the context with its floating-point state, in the block's frame.
ucontext_t& copy_context(const ucontext_t& context, ThreadBlock& to);

// The context with its floating-point state, as bytes; and from such bytes, in a place that is aligned to 64 bytes.
std::vector<std::byte> save_context(const ucontext_t& context);
ucontext_t& restore_context(std::span<const std::byte> bytes, std::span<std::byte> place);

// How the system writes the floating-point state of a context.
struct RegisterFormat {
  uint32_t extended_size = 0;
  uint32_t state_size = 0;
  uint64_t components = 0;
  bool operator==(const RegisterFormat&) const = default;
};
// That of this context; nullopt: there is more than kFrameSize has room for, or no extended state.
std::optional<RegisterFormat> register_format(const ucontext_t& context);
// The context in the block's gate_frame, with all that does not depend on where the guest is.
ucontext_t& gate_context(ThreadBlock& thread, const RegisterFormat& format);

// The host's handlers of faults, on a node that is not the home.
Status install_host_handlers();

// While it exists, no signal reaches this thread.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  uint64_t before_ = 0;
};

}  // namespace multigrain::guest
