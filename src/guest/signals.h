// The signals of a guest: the dispositions, masks and stacks that it has asked for, and its handlers' frames.
//
// The kernel knows the guest's mask and dispositions, with four differences: the host's handler (entry.h) stands in for
// each handler of the guest; SIGSYS, SIGSEGV and SIGBUS always have the host's handler, and are never blocked; the
// alternate stack is the host's; and the host writes a handler's frame, in the kernel's format, where the kernel would
// have written it. So everything that the guest leaves to the kernel (stopping, ignoring, waiting, dying of a signal)
// is as it would be without the host.
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
// The kernel's set of signals has this many bytes; the C library's sigset_t is larger.
inline constexpr size_t kMaskSize = sizeof(uint64_t);

// By this signal, a node interrupts one of its threads that is away from home, to hand it a signal of the guest. The
// guest's own signals do not come to such a node. It is not SIGSYS: the kernel keeps at most one pending signal of a
// kind, so a system call that the guest makes while a SIGSYS waits to be delivered would be lost.
inline constexpr int kKick = SIGURG;

// The kernel's sigaction, which is not the C library's.
struct SystemAction {
  uint64_t handler = 0;  // SIG_DFL, SIG_IGN or an address
  uint64_t flags = 0;
  uint64_t restorer = 0;
  uint64_t mask = 0;
};

// The dispositions of signals that a guest has asked for. All its threads share them.
class SignalActions {
 public:
  SignalActions() = default;
  // Copies the dispositions for a process that shares memory but not dispositions (vfork). `other` must
  // not change meanwhile.
  SignalActions(const SignalActions& other) MG_NO_THREAD_SAFETY_ANALYSIS : actions_(other.actions_) {}
  SignalActions& operator=(const SignalActions&) = delete;
  virtual ~SignalActions() = default;

  // Takes over which signals this process ignores or leaves to the kernel, and installs the host's own handlers.
  Status begin() MG_EXCLUDES(mutex_);
  [[nodiscard]] virtual SystemAction action(int signal) MG_EXCLUDES(mutex_);
  // Does what rt_sigaction() does. Returns 0 or -errno. The signal is valid and can be caught.
  virtual long set(int signal, const SystemAction& action) MG_EXCLUDES(mutex_);
  // Installs once more what set() installed, after the host's C library has put a handler of its own there.
  virtual void restore(int signal) MG_EXCLUDES(mutex_);

  // Makes the host have its handler for signals that the guest leaves to the kernel and of which the process dies, so
  // that the host sees that end coming. Must be called before begin().
  void see_ends() { sees_ends_ = true; }

  void lock() MG_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() MG_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  // Returns what the kernel is given in the place of the guest's action.
  [[nodiscard]] SystemAction action_for_system(int signal, const SystemAction& action) const;

  Mutex mutex_;
  std::array<SystemAction, kSignals + 1> actions_ MG_GUARDED_BY(mutex_);
  bool sees_ends_ = false;
};

// These read and set the guest's mask, as it will be when this context returns to the guest.
uint64_t mask_of(const ucontext_t& context, const ThreadBlock& thread);
void set_mask(ucontext_t& context, ThreadBlock& thread, uint64_t mask);

// Does what sigaltstack() does, for the thread whose context this is. Returns 0 or -errno.
long set_alternate_stack(const ucontext_t& context, ThreadBlock& thread, const stack_t* wanted, stack_t* before);

// Returns whether a process dies of this signal by default.
bool ends_process(int signal);
// Returns whether the host must always receive this signal, so that the kernel cannot keep it for a guest
// that blocks it.
bool is_hidden(int signal);
// Keeps such a signal for the guest, unless one of that number is kept already.
void hold(const siginfo_t& info, ThreadBlock& thread);
// Returns a held signal of the set, whose slot is free then. si_signo is 0 if there is none.
siginfo_t take_held(uint64_t set, ThreadBlock& thread);
// Returns the set of held signals.
uint64_t held_signals(const ThreadBlock& thread);

// Makes the guest continue in its handler, which later returns to the context as it was; or does what else the guest's
// disposition asks for.
void deliver(int signal, const siginfo_t& info, ucontext_t& context, ThreadBlock& thread);

// Does what rt_sigreturn does: the context becomes what the frame on the guest's stack says.
void return_from_handler(ucontext_t& context, ThreadBlock& thread);

// Ends the process as the kernel would by this signal.
[[noreturn]] void die_of(int signal);

// Copies the context with its floating-point state into the block's frame.
ucontext_t& copy_context(const ucontext_t& context, ThreadBlock& to);

// save_context() returns the context with its floating-point state as bytes. restore_context() makes a context of such
// bytes in a place that is aligned to 64 bytes.
std::vector<std::byte> save_context(const ucontext_t& context);
ucontext_t& restore_context(std::span<const std::byte> bytes, std::span<std::byte> place);

// The format in which the kernel writes the floating-point state of a context.
struct RegisterFormat {
  uint32_t extended_size = 0;
  uint32_t state_size = 0;
  uint64_t components = 0;
  bool operator==(const RegisterFormat&) const = default;
};
// Returns the format of this context; nullopt if kFrameSize has no room for the state, or if there is
// no extended state.
std::optional<RegisterFormat> register_format(const ucontext_t& context);
// Returns the context in the block's gate_frame, with all that does not depend on where the guest is.
ucontext_t& gate_context(ThreadBlock& thread, const RegisterFormat& format);

// Installs the host's handlers of faults, on a node that is not the home.
Status install_host_handlers();

// While an object exists, only those signals reach this thread that the host always needs.
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
