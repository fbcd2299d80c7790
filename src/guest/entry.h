// Where a guest's thread enters the host and leaves it: the instructions around signal handlers.
//
// Every way from the guest into the host is a signal, but for calls of some places (gates.h): SIGSYS for a system call (Syscall User Dispatch), SIGSEGV and SIGBUS
// for faults, and whatever signal the guest has a handler for. The handler runs on the thread's alternate stack
// (thread_block.h), with the host's thread pointer, and with system calls that pass.
//
// A signal for the guest may come while the host runs. Then its handler only records it, blocks all others until the
// host's handler ends, and
//  * if the host has not yet passed the point of no return of a system call for the guest, the call is not begun:
//    pass_call() returns kRestart;
//  * if the host is on its way back to the guest, that way begins again, and finds the record.
// So a signal is delivered at the boundary, at once, and no system call sleeps through it. These are restartable
// sequences, by the address of the interrupted instruction.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "base/error.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

// What pass_call() returns if a signal came before the call began, or if the system wants it repeated after the handler.
inline constexpr long kRestart = -512;

// Whether this machine can host guests. The error says what is missing.
Status check_machine();

// Makes this thread's signals run on the block's stack, and its system calls arrive once it is in the guest. The calling
// thread blocks all signals. Errors: a system without Syscall User Dispatch.
Status prepare_thread(ThreadBlock& block);
// Lets gs of the calling thread lead to its block, which is of use to gates alone (gates.h).
void point_gs(ThreadBlock& block);
// In the child of a fork, which inherits all but the dispatch of system calls.
Status resume_dispatch(ThreadBlock& block);
// Undoes prepare_thread(): the thread has left the guest, and blocks all signals.
void retire_thread();

// Continues in the guest with these registers and this signal mask. `context` lies in the block, with its floating-point
// state or none. Returns when the thread calls leave_guest().
void enter_guest(ThreadBlock& block, ucontext_t& context);
// Continues after enter_guest(), on the stack that called it. All signals are blocked.
[[noreturn]] void leave_guest(ThreadBlock& block);

// Makes a system call for the guest. Returns what the system returns (-errno for errors), or kRestart.
long pass_call(long number, const uint64_t arguments[6], ThreadBlock& block);

// Copies from or to memory of the guest; false if some of it has no such right.
bool copy_guarded(void* to, const void* from, size_t bytes);

// The same for an aligned word, as one access.
bool load_guarded(const void* address, uint32_t& value);
// Replaces a word by `after` if it is `before`, atomically; else `before` becomes its value.
enum class Exchange : int { kDone = 0, kFault = 1, kDiffers = 2 };
Exchange exchange_guarded(void* address, uint32_t& before, uint32_t after);

// The signal handler of all signals, for the system's own sigaction structure.
void* handler_address();
void* restorer_address();

// For the handler: the mcontext's instruction pointer lies where a fault or signal has to continue elsewhere.
// True and moved, if so.
bool move_if_copying(greg_t& instruction);
void move_if_restartable(greg_t& instruction);

}  // namespace multigrain::guest
