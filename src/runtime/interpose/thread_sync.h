// Refuses mutexes, conditions, barriers and semaphores of POSIX and C11 in memory that several nodes share. They work
// inside one process: each node would have its own idea of which thread holds them.
#pragma once

namespace multigrain {

// From now on `refuse` is called when a thread is about to lock, wait for or signal such an object in the shared
// region: with the function's name, the object, and what to use instead. It does not return. If it is null,
// nothing is refused.
void refuse_thread_sync(void (*refuse)(const char* function, const void* object, const char* instead));

}  // namespace multigrain
