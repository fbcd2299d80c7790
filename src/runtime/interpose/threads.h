// Lets the runtime act at the beginning and the end of every thread that the program or the runtime starts.
#pragma once

#include <pthread.h>
#include <threads.h>

#include <ctime>

namespace multigrain {

// From now on every thread that pthread_create (and so std::thread) or thrd_create starts runs `begin` before its
// function, and `end` when it ends, after the destructors of its thread-local objects. Neither may fail. A function
// that is null is not called.
void set_thread_hooks(void (*begin)(), void (*end)());

// The same, before everything else in a thread, for what the program's code needs to run at all: from the first thread
// on that starts after this call. Called once.
void set_first_thread_hooks(void (*begin)(), void (*end)());

// From now on `ended` runs at the end of every thread before the functions above, and after the destructors of its
// thread-local objects. Called once.
void set_end_of_threads(void (*ended)());

// count_threads() begins to count the threads that the program starts, and counted_threads() returns how many it has
// started since. Threads that were started before are those of libraries, and the runtime starts its own by
// create_real_thread().
void count_threads();
unsigned long counted_threads();

// Functions that do what those of the C library do, for a program whose threads run on all nodes (src/threads). A
// pthread_t is then the address of what these know of a thread.
struct ThreadFunctions {
  // Returns whether code at this address starts and names such threads: not that of the runtime and of libraries.
  bool (*is_for)(const void* caller);
  int (*create)(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument);
  int (*join)(pthread_t thread, void** result, clockid_t clock, const timespec* until, bool tries);
  int (*detach)(pthread_t thread);
  pthread_t (*self)();
  // Notes the calling thread's result, and returns if the thread may end now.
  void (*exit)(void* result);
  // Stores what the C library calls the thread. Returns 0, or ESRCH if it is on another node.
  int (*real)(pthread_t thread, pthread_t* real);
  int (*key_create)(pthread_key_t* key, void (*destructor)(void*));
  int (*key_delete)(pthread_key_t key);
  // Stores the C library's number for the key on this node. Returns 0 or an errno value.
  int (*real_key)(pthread_key_t key, pthread_key_t* real);
  // The processors of the machine.
  unsigned (*processors)();
};
// From now on these serve the program; if it is null, the C library does. They must outlive the program.
void serve_threads(const ThreadFunctions* functions);

// Starts a thread as pthread_create() does without them.
int create_real_thread(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument);
// Ends the calling thread as pthread_exit() does without them.
[[noreturn]] void exit_real_thread();

}  // namespace multigrain
