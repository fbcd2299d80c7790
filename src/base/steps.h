// Where a test that tries all orders of the accesses of memory stops a thread of what it explores (a protocol's driver, the
// network locks): before an access of memory that other threads access as well and that no lock guards which all of them
// hold. Nothing in the product; such a test builds the sources once more, and includes a header before them that
// defines these (tests/coherence/driver_steps.h).
#pragma once

#ifndef MULTIGRAIN_STEP
// Before the word, or the bytes, at `address` are read, and before they are written.
#define MULTIGRAIN_STEP(address) static_cast<void>(0)
// Before a lock is taken: the thread goes on when it is free.
#define MULTIGRAIN_LOCK_STEP(lock) static_cast<void>(0)
// Before the word at `address` is looked at again, which was `seen`: the thread goes on when it is something else.
#define MULTIGRAIN_CHANGE_STEP(address, seen) static_cast<void>(0)
// Whether the clock (monotonic_ns()) has come to `time`, which belongs to the object at `address`.
#define MULTIGRAIN_TIME_HAS_COME(address, time) (monotonic_ns() >= (time))
// How often a thread looks again at something before it gives up. In a test not at all: there a thread that looks later
// stands for one that looks again.
#define MULTIGRAIN_SPINS(number) (number)
// Up to the end of the block, the thread keeps in these locals what it has learnt before it stops: such a test looks at them
// to tell states apart.
#define MULTIGRAIN_LOCALS(...) static_cast<void>(0)
#endif

#ifndef MULTIGRAIN_FINDS
// The value of an expression that makes one access of the word at `address`, before which the thread stops. Such a test tells
// states apart by what threads have found: of that access, this value and no more.
#define MULTIGRAIN_FINDS(address, ...) (__VA_ARGS__)
// The value of an expression that makes other accesses, or reads what a lock guards that the thread has: of them the thread
// keeps this value and no more.
#define MULTIGRAIN_KEEPS(...) (__VA_ARGS__)
// In a function that returns nothing and changes nothing of its caller's: at its end the thread has forgotten what it found
// in there.
#define MULTIGRAIN_FORGETS static_cast<void>(0)
// Of all that the thread has found since its operation began, it knows from here on these values, and no more.
#define MULTIGRAIN_KNOWS(...) static_cast<void>(0)
// Before a thread takes the count of an EventCount (fabric/wait.h), on which it will sleep unless it is announced meanwhile.
#define MULTIGRAIN_WAIT_STEP(event) static_cast<void>(0)
// Before it sleeps: the thread goes on when the event was announced since.
#define MULTIGRAIN_SLEEP_STEP(event) static_cast<void>(0)
#endif

#ifndef MULTIGRAIN_RING
// How many entries a ring has. A test makes it a variable, so that rings of a few entries go round.
#define MULTIGRAIN_RING(name, entries) inline constexpr uint64_t name = entries
#endif
