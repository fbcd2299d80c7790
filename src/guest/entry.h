// The instructions by which a guest's thread enters the host and leaves it again. They make sure that a signal for the
// guest is delivered at the boundary, at once, and that no system call sleeps through it.
//
// Every way from the guest into the host is a signal, except for the calls of some places (gates.h): SIGSYS for a
// system call (Syscall User Dispatch), SIGSEGV and SIGBUS for faults, and any signal for which the guest has a handler.
// The host's handler runs on the thread's alternate stack (thread_block.h), with the host's thread pointer, and with
// system calls that pass.
//
// A signal for the guest may come while the host runs. Then its handler only records it, blocks all others until the
// host's handler ends, and
//  * if the host has not yet passed the point of no return of a system call for the guest, the call is not begun:
//    pass_call() returns kRestart;
//  * if the host is on its way back to the guest, that way begins again, and finds the record.
// These are restartable sequences, told by the address of the interrupted instruction.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "base/error.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

// pass_call() returns this if a signal came before the call began, or if the kernel wants the call repeated
// after the handler.
inline constexpr long kRestart = -512;

// Checks whether this machine can host guests. The error says what is missing.
Status check_machine();

// Makes this thread's signals run on the block's stack, and makes its system calls arrive in the host once the thread
// is in the guest. The calling thread blocks all signals. Fails on a kernel without Syscall User Dispatch.
Status prepare_thread(ThreadBlock& block);
// Makes gs of the calling thread point to its block, which only call gates use (gates.h).
void point_gs(ThreadBlock& block);
// Makes the system calls of a fork's child arrive in the host, since a child inherits everything else but not that.
Status resume_dispatch(ThreadBlock& block);
// Undoes prepare_thread(). The thread has left the guest, and blocks all signals.
void retire_thread();

// Continues in the guest with these registers and this signal mask. `context` lies in the block, with or without a
// floating-point state. Returns when the thread calls leave_guest().
void enter_guest(ThreadBlock& block, ucontext_t& context);
// Continues behind enter_guest(), on the stack from which that was called. All signals are blocked.
[[noreturn]] void leave_guest(ThreadBlock& block);

// Makes a system call for the guest. Returns what the kernel returns (-errno for errors), or kRestart.
long pass_call(long number, const uint64_t arguments[6], ThreadBlock& block);

// Copies from or to memory of the guest. Returns false if the guest has no such right to some of it.
bool copy_guarded(void* to, const void* from, size_t bytes);

// Does the same for an aligned word, in one access.
bool load_guarded(const void* address, uint32_t& value);
// exchange_guarded() replaces a word by `after` if it is `before`, atomically; else it stores the word in `before`.
enum class Exchange : int { kDone = 0, kFault = 1, kDiffers = 2 };
Exchange exchange_guarded(void* address, uint32_t& before, uint32_t after);

// These return the handler of all signals and its restorer, for the kernel's own sigaction structure.
void* handler_address();
void* restorer_address();

// The handler calls these with the interrupted instruction pointer. If the code there has to continue elsewhere after a
// fault (move_if_copying()) or a signal (move_if_restartable()), they move the pointer. move_if_copying() returns
// whether it did.
bool move_if_copying(greg_t& instruction);
void move_if_restartable(greg_t& instruction);

}  // namespace multigrain::guest
