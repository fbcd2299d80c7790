// Writes down what is known about the signal that kills this process, for its launcher to explain
// (report/crash_report.h).
//
// All of it happens in the signal handler, on the thread that got the signal: no allocation, no lock, no stdio. The
// stack is followed by the C++ runtime's unwinder, which since glibc 2.35 finds its tables without a lock; should it
// fault (a damaged stack), what was found before stays.
#pragma once

#include <csignal>

namespace multigrain {

// Gives the calling thread a stack for the handlers of signals, if it has none: a processor whose stack has overflowed
// has no other. Each thread calls it once, at its start.
void use_alternate_stack();

// Makes SIGABRT, SIGFPE and SIGILL be written down before they take their default action. A handler that the program
// installs takes the place of this one. Called once, at start-up.
void install_crash_handlers();

// Writes down a fatal signal, unless one was written down before. `address` is what was accessed, or nullptr where
// nothing was. Called before the signal takes its default action. Async-signal-safe.
void record_crash(int signal, const siginfo_t* info, const void* context, const void* address);

// The handler of SIGSEGV and SIGBUS calls this first. It does not return if record_crash() itself has faulted.
void return_to_crash_record();

}  // namespace multigrain
