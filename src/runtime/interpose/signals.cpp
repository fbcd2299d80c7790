#include "runtime/interpose/signals.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/spin_lock.h"
#include "runtime/interpose/bounce.h"
#include "runtime/interpose/handlers.h"
#include "runtime/interpose/real.h"

namespace multigrain {
namespace {

using Action = struct sigaction;
// The kernel's mask has bit signo-1 for a signal. The C library's sigset_t is longer than what a signal frame holds.
using KernelMask = uint64_t;

constexpr KernelMask bit(int signo) {
  return KernelMask{1} << (signo - 1);
}
constexpr KernelMask kOurs = bit(SIGSEGV) | bit(SIGBUS);

constinit std::atomic<KernelMask> g_taken{0};  // the signals whose handler is the runtime's
// The lock is held for copies of private memory only, with signals blocked.
constinit SpinLock g_lock;
Action g_program_segv MG_GUARDED_BY(g_lock);
Action g_program_bus MG_GUARDED_BY(g_lock);
// The runtime's action for SIGSEGV, with the alternate stack if the runtime has asked for it.
Action g_runtime_segv MG_GUARDED_BY(g_lock);
bool g_program_has_stacks MG_GUARDED_BY(g_lock) = false;

bool is_ours(int signo) {
  return (signo == SIGSEGV || signo == SIGBUS) && (g_taken.load(std::memory_order_acquire) & bit(signo)) != 0;
}
Action& program_action(int signo) {
  return signo == SIGSEGV ? g_program_segv : g_program_bus;
}

KernelMask set_mask(KernelMask mask) {
  KernelMask before = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof mask);
  return before;
}

// Handlers may call sigaction too, so signals wait while the lock is held.
class MG_SCOPED_CAPABILITY ActionLock {
 public:
  ActionLock() MG_ACQUIRE(g_lock) : before_(set_mask(~kOurs)) { g_lock.lock(); }
  ~ActionLock() MG_RELEASE() {
    g_lock.unlock();
    set_mask(before_);
  }
  ActionLock(const ActionLock&) = delete;
  ActionLock& operator=(const ActionLock&) = delete;

 private:
  KernelMask before_;
};

KernelMask kernel_mask(const sigset_t& set) {
  KernelMask mask;
  std::memcpy(&mask, &set, sizeof mask);
  return mask;
}

void choose_stack();

sigset_t without_ours(sigset_t set) {
  sigdelset(&set, SIGSEGV);
  sigdelset(&set, SIGBUS);
  return set;
}

// Returns `set` as the program gave it, or the copy of it without the runtime's signals.
const sigset_t* harmless(int how, const sigset_t* set, sigset_t& copy) {
  if (set == nullptr || how == SIG_UNBLOCK || g_taken.load(std::memory_order_acquire) == 0) return set;
  copy = without_ours(*set);
  return &copy;
}

}  // namespace

MG_WRAPPER(int, sigaction, int signo, const Action* action, Action* old) {
  if (g_taken.load(std::memory_order_acquire) == 0) return sigaction_of_program(signo, In(action), InOut(old));
  Action wanted;
  if (action != nullptr) wanted = *action;
  if (!is_ours(signo)) {
    if (action != nullptr) wanted.sa_mask = without_ours(wanted.sa_mask);
    return sigaction_of_program(signo, action != nullptr ? &wanted : nullptr, InOut(old));
  }
  Action previous;
  {
    const ActionLock lock;
    Action& current = program_action(signo);
    previous = current;
    if (action != nullptr) current = wanted;
    if (action != nullptr && signo == SIGSEGV) choose_stack();
  }
  if (old != nullptr) *old = previous;
  return 0;
}

namespace {

// Lets the runtime's handler for SIGSEGV run on the alternate stack or keeps it from there; signals.h says when.
void choose_stack() MG_REQUIRES(g_lock) {
  if ((g_runtime_segv.sa_flags & SA_ONSTACK) == 0) return;
  const bool has_handler = g_program_segv.sa_handler != SIG_DFL && g_program_segv.sa_handler != SIG_IGN;
  const bool wanted = has_handler ? (g_program_segv.sa_flags & SA_ONSTACK) != 0 : !g_program_has_stacks;
  Action action = g_runtime_segv;
  if (!wanted) action.sa_flags &= ~SA_ONSTACK;
  MG_REAL(sigaction)(SIGSEGV, &action, nullptr);
}

// Does what signal() does by sigaction, with the flags that tell its dialects apart.
sighandler_t remember(int signo, sighandler_t handler, int flags) {
  Action action{};
  Action old{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (mg_wrap_sigaction(signo, &action, &old) != 0) return SIG_ERR;
  return old.sa_handler;
}

constexpr int kBsd = SA_RESTART;
constexpr int kSystemV = static_cast<int>(SA_RESETHAND) | SA_NODEFER;

}  // namespace

#define MG_SIGNAL(name, flags)                                                         \
  MG_WRAPPER(sighandler_t, name, int signo, sighandler_t handler) {                    \
    if (is_ours(signo) || has_handler_hooks()) return remember(signo, handler, flags); \
    return MG_REAL(name)(signo, handler);                                              \
  }
MG_SIGNAL(signal, kBsd)
MG_SIGNAL(bsd_signal, kBsd)
MG_SIGNAL(ssignal, kBsd)
MG_SIGNAL(sysv_signal, kSystemV)
MG_SIGNAL(__sysv_signal, kSystemV)

MG_WRAPPER(int, sigprocmask, int how, const sigset_t* set, sigset_t* old) {
  sigset_t copy;
  return MG_REAL(sigprocmask)(how, In(harmless(how, set, copy)), InOut(old));
}

MG_WRAPPER(int, pthread_sigmask, int how, const sigset_t* set, sigset_t* old) {
  sigset_t copy;
  return MG_REAL(pthread_sigmask)(how, In(harmless(how, set, copy)), InOut(old));
}

MG_WRAPPER(int, sigaltstack, const stack_t* stack, stack_t* old) {
  const int result = MG_REAL(sigaltstack)(In(stack), InOut(old));
  if (result == 0 && stack != nullptr && (g_taken.load(std::memory_order_acquire) & bit(SIGSEGV)) != 0) {
    const ActionLock lock;
    g_program_has_stacks = true;
    choose_stack();
  }
  return result;
}

int real_sigaction(int signo, const struct sigaction* action, struct sigaction* old) {
  Action previous;
  const int result = MG_REAL(sigaction)(signo, action, &previous);
  if (result != 0) return result;
  if (old != nullptr) *old = previous;
  if (action != nullptr && (signo == SIGSEGV || signo == SIGBUS)) {
    const ActionLock lock;
    const KernelMask taken = g_taken.load(std::memory_order_relaxed);
    if ((taken & bit(signo)) == 0) {
      program_action(signo) = previous;
      g_taken.store(taken | bit(signo), std::memory_order_release);
    }
    if (signo == SIGSEGV) {
      g_runtime_segv = *action;
      choose_stack();
    }
  }
  return 0;
}

bool forward_to_user_handler(int signo, siginfo_t* info, void* context) {
  Action program;
  {
    const ActionLock lock;
    Action& current = program_action(signo);
    program = current;
    if ((static_cast<unsigned>(program.sa_flags) & SA_RESETHAND) != 0) current.sa_handler = SIG_DFL;
  }
  const bool sent = info->si_code <= 0;  // sent by kill or sigqueue, not by a fault
  if (program.sa_handler == SIG_IGN) return sent;
  if (program.sa_handler == SIG_DFL) return false;

  // This is the mask that the kernel would have set. The runtime's two signals stay open even without SA_NODEFER:
  // the handler may touch shared memory. Returning from the runtime's own handler restores the interrupted mask
  // in any case.
  KernelMask interrupted;
  std::memcpy(&interrupted, &static_cast<ucontext_t*>(context)->uc_sigmask, sizeof interrupted);
  const KernelMask before = set_mask((interrupted | kernel_mask(program.sa_mask)) & ~kOurs);
  {
    HandlerScope scope;
    if ((program.sa_flags & SA_SIGINFO) != 0) {
      program.sa_sigaction(signo, info, context);
    } else {
      program.sa_handler(signo);
    }
    scope.returned();
  }
  set_mask(before);
  return true;
}

}  // namespace multigrain
