// A program that was compiled with -fmultigrain-threads, in a run of several nodes: its threads run on all of them, and what
// threads share on one machine is shared memory.
//
//   globals                     mg_share_globals(), before main()
//   malloc's and new's memory   of the program and for the C++ library (memory.cpp)
//   local variables             whose addresses others may get: the second stack of each thread (shared_stack.cpp)
//   mutexes and their like      in such memory are Multigrain's (posix_objects.cpp)
//   threads                     run on the processors of the run (posix_threads.cpp)
//
// All of it is kept by the run's page protocol, also in a program that has compiled checks. Under mgs and hlrc a program
// must synchronise by the functions of POSIX, C11 or C++, or by atomics; it may not hand over data by plain variables.
//
// In a run of one node none of this is done, and such a program's threads are threads of its process.
#pragma once

#include <atomic>

#include "base/error.h"
#include "fabric/fabric.h"
#include "runtime/node.h"

namespace multigrain::threads {

// The C library has no more keys either.
inline constexpr unsigned kKeys = 1024;

// What all nodes must know of such a program, in shared memory. It is used under the lock that its address
// chooses (made_object.h).
struct SharedState {
  struct Key {
    uint32_t in_use = 0;
    uint32_t generation = 0;  // grows when the key is deleted
    void (*destructor)(void*) = nullptr;
  };
  Key keys[kKeys];
};

// Registers the handler of a node's part. Called on every node before any message is served.
void prepare_sharing(Node& node);

// Begins to share. Called on node 0 before main(); until then other nodes have nothing to run. Returns an error if globals
// cannot be shared, or there is no memory.
Status begin_sharing(Node& node);

// Returns whether the program's threads share memory over several nodes. Async-signal-safe.
[[nodiscard]] bool is_sharing();

// Returns the state; null on a node that has not heard of it, whose processors then have run nothing yet.
[[nodiscard]] SharedState* shared_state();

// Returns `size` bytes of shared memory, zeroed; null if there is none.
[[nodiscard]] void* allocate_shared(size_t size);

}  // namespace multigrain::threads
