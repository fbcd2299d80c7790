// Runtimes of threads and of MPI that are not Multigrain's (libomp, libgomp, ...) keep threads and tables in each
// process that uses them, and their variables are not copied to other nodes (globals.h). So what these point to must
// not be overwritten by a copy of node 0's private heap: on a node that takes copies, malloc gives such a runtime
// blocks of the boot heap. On node 0 it gives it blocks of the private heap: variables of the program point to some
// of them (names of critical sections), and must find the copy.
#pragma once

namespace multigrain {

// Returns whether the address is in the code of such a runtime. Async-signal-safe after the first call of
// program_globals().
bool in_runtimes_code(const void* address);

// Returns whether a copy of node 0's heap has begun to arrive here, so that another may. Async-signal-safe.
bool takes_heap_copies();

}  // namespace multigrain
