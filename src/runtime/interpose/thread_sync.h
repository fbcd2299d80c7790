// Stands in front of mutexes, conditions, barriers and semaphores of POSIX and C11 that are in memory which several nodes
// share. By themselves they work inside one process: each node would have its own idea of which thread holds them. So
// they are refused, or, in a program that was written for threads (runtime/threads), another implementation serves them.
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <threads.h>

#include <ctime>

namespace multigrain {

// From now on `refuse` is called when a thread is about to lock, wait for or signal such an object in the shared
// region: with the function's name, the object, and what to use instead. It does not return. If it is null,
// nothing is refused.
void refuse_thread_sync(void (*refuse)(const char* function, const void* object, const char* instead));

// Functions that do what those of the C library do, with objects in the shared region.
struct ThreadSync {
#define MG_SYNC(result, name, parameters, arguments, instead) result(*name) parameters;
#include "runtime/interpose/thread_sync.def"
#undef MG_SYNC
};
// From now on these serve the objects in the shared region; they must outlive the program's last use of one. If it is
// null, they are refused as above.
void serve_thread_sync(const ThreadSync* functions);

}  // namespace multigrain
