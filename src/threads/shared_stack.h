// The second stack of every thread, where code that was compiled with -fmultigrain-threads has the local variables whose
// addresses other threads may get (src/threads/pass/shared_stack.h). It is private memory of the node, unless the program
// shares memory over nodes (sharing.h): then it is shared memory, of as many bytes as the system gives an ordinary stack.
#pragma once

namespace multigrain::threads {

// Gives the calling thread a shared stack, if the program shares memory and the thread has none yet. Called before the
// program's code runs on the thread, or by code that the thread returns to before any other of the program runs. Returns
// false if there is no memory.
bool use_shared_stack();

}  // namespace multigrain::threads
