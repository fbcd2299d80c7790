// What the runtime does at the begin and the end of every thread that the program or the runtime starts.
#pragma once

namespace multigrain {

// From now on every thread that pthread_create (and so std::thread) or thrd_create starts runs `begin` before its
// function, and `end` when it ends, after the destructors of its thread-local objects. Neither may fail. Null: nothing.
void set_thread_hooks(void (*begin)(), void (*end)());

// How many threads the program has started since count_threads() was called. Before, threads are the runtime's and
// those of libraries.
void count_threads();
unsigned long counted_threads();

}  // namespace multigrain
