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
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
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
