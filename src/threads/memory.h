// malloc's and new's memory of a program whose threads run on several nodes (sharing.h).
#pragma once

namespace multigrain::threads {

// From now on what the program's code and the C++ library allocate is shared memory. What the C library allocates for
// itself (the buffers of streams) stays private to a node, because it hands that to system calls; functions of the C
// library that return such memory to the program are made anew (memory.cpp).
void serve_memory();
// In a forked child: it allocates private memory, and has copies of the blocks that it had, which it does not give back.
void serve_memory_of_child();

}  // namespace multigrain::threads
