// SIGSEGV and SIGBUS belong to the runtime, and to the program as far as the faults are the program's own.
//
// A program's sigaction or signal for the two is recorded instead of installed, and reported back as if it had been;
// the runtime's handler passes on the faults that are not on shared memory. A fault on a thread that blocks the signal
// kills the process, so the two are also taken out of every mask that the program sets (sigprocmask, pthread_sigmask,
// the sa_mask of other handlers); sigset, sigsuspend and the masks of ppoll and pselect are left alone, as they hold
// while no program code runs, or rarely.
//
// The runtime's handler for SIGSEGV asks for the thread's alternate stack (SA_ONSTACK), which is the runtime's on a
// processor: a stack that has overflowed has no room for a handler. It does not ask where that might be wrong: a
// program whose own handler did not ask for it finds the interrupted stack; and once a program has set alternate
// stacks, which may be too small for the protocol, only a handler of its own that asks for them is called there.
#pragma once

#include <csignal>

namespace multigrain {

// Calls the C library's sigaction, for the runtime's own handlers. The first action that it replaces for SIGSEGV or
// SIGBUS becomes the program's; from then on the program's calls for that signal are only recorded. Async-signal-safe.
int real_sigaction(int signo, const struct sigaction* action, struct sigaction* old);

// Calls the program's handler for a fault that is not the runtime's, under the signal mask that it asked for and with
// SIGSEGV and SIGBUS open, since it may touch shared memory. Returns false if the program has no handler, or if it
// ignores the signal and the signal is a fault: then the signal must take its default action. Only the runtime's
// handler calls this; async-signal-safe. The program's handler may leave by longjmp, so the caller may hold no lock.
bool forward_to_user_handler(int signo, siginfo_t* info, void* context);

}  // namespace multigrain
