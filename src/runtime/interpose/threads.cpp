// A thread's thread-local storage is the C library's: it must survive a copy of node 0's heap onto this node.
#include <pthread.h>

#include "runtime/interpose/real.h"
#include "runtime/private/private_heap.h"

namespace multigrain {

MG_WRAPPER(int, pthread_create, pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
           void* argument) {
  const BootHeapScope boot;
  return MG_REAL(pthread_create)(thread, attributes, function, argument);
}

}  // namespace multigrain
