// Mutexes, conditions, barriers, semaphores of POSIX and C11 work inside one process: where their object is in memory
// that several nodes share, each node would have its own idea of who holds it.
#pragma once

namespace multigrain {

// From now on `refuse` is called when a thread is about to lock, wait for or signal such an object in the shared region:
// with the function's name, the object, and what to use instead. It does not return. Null: nothing is refused.
void refuse_thread_sync(void (*refuse)(const char* function, const void* object, const char* instead));

}  // namespace multigrain
