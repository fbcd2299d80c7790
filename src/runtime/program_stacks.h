// Stacks of the program's own at fixed addresses, for runs that keep the program's stacks in checkpoints
// (docs/internals/checkpoints.md). Each processor of this node has one, and so has main()'s thread, which is processor 0 of
// node 0. A thread keeps the stack that the C library gave it for what the runtime does before and after the program's
// function: nothing of that is in a checkpoint, so the process that goes on may have something else there.
//
//   call()                                    save()                          resume()
//   frames of this process | base             base | frames of the program    frames of another process | base
//   (the thread's stack)   | (fixed address)  (what a checkpoint has)         | the program's frames, which go on
//
// The base has nothing of its process: where the thread goes on when the program's function returns is in a variable of the
// thread. So the same bytes serve in another process that has the same code at the same addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "multigrain/multigrain.h"
#include "runtime/stacks.h"

namespace multigrain::program_stacks {

// Maps the stacks of so many processors, and memory for their threads. Called once, before any of them starts. Errors: the
// addresses are in use, or there is no memory.
Status create(unsigned processors);
// Returns whether there are such stacks. Async-signal-safe.
bool exist();
// Returns where the stack of this node's processor is. Async-signal-safe.
Stack of_processor(unsigned place);
// Returns the memory that the processor's thread gets from pthread_attr_setstack(): so its thread-local variables have fixed
// addresses, too. Not of main()'s thread, whose variables are where the loader puts them.
Stack of_thread(unsigned place);

// What a call must preserve, and what the compiler takes to be the same in all frames of a thread.
struct Context {
  uint64_t rbx, rbp, r12, r13, r14, r15;
  uint64_t rsp;     // after save() has returned
  uint64_t rip;     // where it returns
  uint64_t canary;  // of stack protection: the frames have it
  uint32_t mxcsr;
  uint16_t x87_control;
  uint16_t reserved;
};

// Calls function(argument) on the stack of the processor, if there are such stacks, and else as usual.
void call(unsigned place, mg_function function, void* argument);
// From now on call() calls this one on the thread's own stack: it is not the program's, and puts back the program's stacks.
void stays_on_thread(mg_function function);
// Calls main() on the stack of processor 0, with copies of its arguments and of the environment that lie there, too.
int call_main(int (*function)(int, char**, char**), int argc, char** argv, char** envp);

// Stores the caller's context and returns 0, and returns 1 when a thread of a later process resumes there. As with setjmp():
// the caller may use nothing after a return of 1 that it had before, and must not have returned when the stack is read.
[[gnu::returns_twice]] int save(Context& context) asm("__multigrain_save_context");
// Goes on where save() was called, on that stack, which has been put back. Returns what the function returns that call() or
// call_main() had called.
int resume(const Context& context);

// Returns the address at which the calling thread's control block is, and relative to which its thread-local variables are.
uintptr_t thread_block();

}  // namespace multigrain::program_stacks
