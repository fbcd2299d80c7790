// Keeps asynchronous signals from the runtime's threads, so that threads of the program take them.
#pragma once

#include <csignal>

namespace multigrain {

// While it exists, the calling thread takes no asynchronous signal. A signal to the process then goes to a thread of
// the program: its handler would otherwise run on a service thread, or on an idle processor, in the middle of the
// protocol. Threads created meanwhile inherit the mask. Faults stay open: they are how the protocol works.
class AsynchronousSignalsBlocked {
 public:
  AsynchronousSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    // These are open as well, so that a crash of the runtime is written down; but not where the calling thread has
    // blocked them, as the host of a guest has: the guest may hold such a signal that another process sends, and a thread
    // of the host would take it.
    for (const int crash : {SIGILL, SIGFPE, SIGTRAP, SIGABRT})
      if (sigismember(&before_, crash) == 0) sigdelset(&all, crash);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
  }
  ~AsynchronousSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AsynchronousSignalsBlocked(const AsynchronousSignalsBlocked&) = delete;
  AsynchronousSignalsBlocked& operator=(const AsynchronousSignalsBlocked&) = delete;

  // The mask that the thread had.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

}  // namespace multigrain
