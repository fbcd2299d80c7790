// Lets the runtime act at the beginning and the end of every thread that the program or the runtime starts.
#pragma once

namespace multigrain {

// From now on every thread that pthread_create (and so std::thread) or thrd_create starts runs `begin` before its
// function, and `end` when it ends, after the destructors of its thread-local objects. Neither may fail. A function
// that is null is not called.
void set_thread_hooks(void (*begin)(), void (*end)());

// The same, before everything else in a thread, for what the program's code needs to run at all: from the first thread
// on that starts after this call. Called once.
void set_first_thread_hooks(void (*begin)(), void (*end)());

// count_threads() begins to count the threads that the program starts, and counted_threads() returns how many it has
// started since. Threads that were started before are the runtime's and those of libraries.
void count_threads();
unsigned long counted_threads();

}  // namespace multigrain
