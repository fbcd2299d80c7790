// Threads of POSIX, C11 and C++ over all nodes, for a program that shares memory over nodes (sharing.h).
//
//  T1  A thread that a thread of node 0 starts runs on the idle processor with the lowest number. If none is idle, or a
//      thread of another node starts it, it runs beside its creator, on the creator's node.
//  T2  A pthread_t is the address of a Thread in shared memory, so any thread of any node may join and compare it. It is
//      given back by the thread that joins it, or by whichever comes later, the end or pthread_detach().
//  T3  Each thread of the program is a thread of the system of its own, so thread-local variables begin anew, and their
//      destructors run at its end. The end is announced after them.
//  T4  Starting a thread is a release, its first step an acquire; its end is a release, and joining it an acquire.
//
// main()'s thread is processor 0. Keys of thread-specific data have a number for all nodes; each node makes a key of the
// C library's for it when a thread there first uses it.
#pragma once

#include <cstdint>

namespace multigrain::threads {

// From now on the program's threads are these.
void serve_posix_threads();

// Makes main()'s thread one of them, on node 0. Returns false if there is no memory.
bool adopt_main_thread();

// Returns a number that no other thread of any node has, and that is not 0.
[[nodiscard]] uint64_t this_thread();

// Returns whether the calling thread is that of a processor, and not one beside it.
[[nodiscard]] bool is_processor_thread();

}  // namespace multigrain::threads
