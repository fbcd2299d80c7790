// Mutexes, conditions, reader-writer locks, barriers, semaphores and once-objects of POSIX and C11 in shared memory, for a
// program whose threads run on several nodes (sharing.h). Each is made of Multigrain's synchronisation.
//
// An object's first 8 bytes hold the handle of the lock, barrier or semaphore that it stands for, or 0, which is also what
// static initialisers leave there. The first thread that uses such an object makes the handle.
//
//  O1  A handle is stored only under the runtime's own lock that the object's address chooses, and only where none is; so
//      all threads use one. A thread that finds a handle without that lock may use it: it was stored before, and the place
//      changes from 0 to the handle and not back as long as the object may be used.
//  O2  The other members of an object are used under that lock, or under the lock that the object is. Exceptions are a
//      mutex's owner and a barrier's way, as said there.
//  O3  What an object does for visibility is what Multigrain's does: an unlock, a signal, a post and a barrier are releases
//      to those that come after, so a program without data races sees memory as on one machine.
//
// Waits with a time limit look again and again, at longer and longer intervals up to a millisecond: such a wait for a
// condition may return early, as POSIX allows. A process-shared or robust mutex, and one that gives its holder another
// priority, is an ordinary one.
#pragma once

namespace multigrain::threads {

// From now on such objects in shared memory work over all nodes.
void serve_posix_objects();

// In a forked child, whose one thread nobody else can exclude or wake: locks are free, and waits return at once.
void serve_posix_objects_of_child();

}  // namespace multigrain::threads
