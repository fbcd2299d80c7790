// Keys of thread-specific data for a program whose threads run on several nodes (posix_threads.h).
#pragma once

#include <pthread.h>

namespace multigrain::threads {

// These do what pthread_key_create() and pthread_key_delete() do, with keys that all nodes know.
int create_key(pthread_key_t* key, void (*destructor)(void*));
int delete_key(pthread_key_t key);

// Stores the C library's key on this node for such a key, and makes one at the first use. A key of another kind stays as
// it is: libraries have their own. Returns 0, EINVAL (there is no such key) or EAGAIN.
int real_key(pthread_key_t key, pthread_key_t* real);

}  // namespace multigrain::threads
