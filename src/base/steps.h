// These mark the places where a test that tries all orders of memory accesses stops a thread of the code that it
// explores (a protocol's driver, the network locks): before an access of memory that other threads access as well,
// unless one lock that all of them hold guards it. In the product the marks do nothing. Such a test builds the sources
// once more, and includes a header before them that defines the marks (tests/coherence/driver_steps.h).
#pragma once

#ifndef MULTIGRAIN_STEP
// Stands before the word, or the bytes, at `address` are read, and before they are written.
#define MULTIGRAIN_STEP(address) static_cast<void>(0)
// Stands before a lock is taken. The thread goes on when the lock is free.
#define MULTIGRAIN_LOCK_STEP(lock) static_cast<void>(0)
// Stands before the word at `address`, which was `seen`, is looked at again. The thread goes on when it is something
// else.
#define MULTIGRAIN_CHANGE_STEP(address, seen) static_cast<void>(0)
// Returns whether the clock (monotonic_ns()) has come to `time`, which belongs to the object at `address`.
#define MULTIGRAIN_TIME_HAS_COME(address, time) (monotonic_ns() >= (time))
// Returns how often a thread looks again at something before it gives up. In a test it does not look again: there a
// thread that looks later stands for one that looks again.
#define MULTIGRAIN_SPINS(number) (number)
// Up to the end of the block, the thread keeps in these locals what it has learnt before it stops. Such a test looks at
// them to tell states apart.
#define MULTIGRAIN_LOCALS(...) static_cast<void>(0)
#endif

#ifndef MULTIGRAIN_CHOICE
// Returns the value. Where it is true the thread decides by what it has learnt, and may be wrong: such a test tries
// both true and false.
#define MULTIGRAIN_CHOICE(value) (value)
#endif

#ifndef MULTIGRAIN_FINDS
// Returns the value of an expression that makes one access of the word at `address`, before which the thread stops.
// Such a test tells states apart by what threads have found: of that access, this value and no more.
#define MULTIGRAIN_FINDS(address, ...) (__VA_ARGS__)
// Returns the value of an expression that makes other accesses, or reads what a lock guards that the thread has. Of
// them the thread keeps this value and no more.
#define MULTIGRAIN_KEEPS(...) (__VA_ARGS__)
// Stands in a function that returns nothing and changes nothing of its caller's. At its end the thread has forgotten
// what it found in there.
#define MULTIGRAIN_FORGETS static_cast<void>(0)
// From here on the thread knows these values, and no more, of all that it has found since its operation began.
#define MULTIGRAIN_KNOWS(...) static_cast<void>(0)
// Stands before a thread takes the count of an EventCount (fabric/wait.h), on which it will sleep unless it is
// announced meanwhile.
#define MULTIGRAIN_WAIT_STEP(event) static_cast<void>(0)
// Stands before the thread sleeps. The thread goes on when the event was announced since.
#define MULTIGRAIN_SLEEP_STEP(event) static_cast<void>(0)
#endif

#ifndef MULTIGRAIN_RING
// Defines how many entries a ring has. A test makes it a variable, so that rings of a few entries go round.
#define MULTIGRAIN_RING(name, entries) inline constexpr uint64_t name = entries
#endif
