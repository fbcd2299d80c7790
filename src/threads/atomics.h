// Atomic operations of programs that were compiled with -fmultigrain-threads. The pass makes calls out of them
// (threads/abi.h); the functions are in atomics.cpp, for objects of 1 to 16 bytes that an instruction can change, and in
// any_size.cpp, for others.
//
// A locked instruction is atomic between the threads of a node, and between nodes only where a node has a page or line
// to itself while it stores there. What is done depends on where the object is:
//
//   private memory, or a run of one node   the instruction
//   pages under sc                         the instruction: no other node has the page when it is made
//   lines (dszoom, shasta)                 the instruction with a hazard over the object, as compiled checks do it
//                                          (instrument/runtime/atomics.cpp)
//   pages under hlrc and mgs               loads and stores under one of Multigrain's locks, which the address chooses
//
// Why the last of these is right. All atomic operations on an object are made under the same lock, so for the protocol
// they are no race, whatever they are for the program:
//
//  A1  The one that takes the lock sees what the holders before it have stored: an acquire follows each release of the
//      lock by another node. hlrc then no longer has pages that are older than what was released; under mgs the
//      release itself has made the other nodes' copies invalid, before the lock was free. Inside a node there is one
//      copy, and the threads of a node that follow each other need no release for that. This holds for hand-overs
//      inside a node, too (Sync::unlock).
//  A2  Nothing else is lost. Diffs are exact to the byte (memory/diff.h), and so are the stores by which homes and merged
//      copies change: a diff has no byte that its node did not change, and a byte beside the object that another node
//      writes at the same time, under another lock or none, stays what that node made it. So objects of 1 and 2 bytes
//      may share a word with others. Where a page moves as a whole (mgs with a single writer), no other node writes it.
//  A3  The operations of all threads on all objects are in one order, which each thread's own order agrees with: an
//      operation takes effect while its lock is held, and the next one of that thread begins later. So all orders of
//      C11 are there, the weaker ones, too, which are not any faster. Each is a release and an acquire of everything
//      that the thread has written before, or reads afterwards: plain data that is handed over by an atomic flag is seen.
//  A4  Fences therefore have nothing to do for atomics. For flags that are plain or volatile, a release fence makes all
//      that the thread has written visible to later acquires, and an acquire fence sees what was released until then.
//
// An object's lock is that of the 64 bytes in which it begins. Objects that overlap there share the lock; a program that
// changes an object in parts of several sizes, across such a border, has no promise.
//
// A plain access that races with an atomic one is a race, as in C11; one that is ordered by what the program does
// otherwise (a barrier, the end of a thread) sees and is seen.
//
// A page may move to lines for good (docs/internals/hlrc.md), where all processors meet: at a barrier, or where they come by at a
// lock, which may be the lock of an atomic operation. So the operation looks again when it has the lock (has_moved()). While it has
// the lock its thread comes by nowhere, and the page stays.
//
// A loop that waits for an atomic store takes the lock each time it looks. The storing thread gets it in turn, since
// locks go to nodes in the order in which they ask; and a thread that looks at the same value again and again gives up
// its core now and then (looked_at()). In virtual time each look is synchronisation, so waiting costs what it does.
//
// Signal handlers: an operation on shared memory may interrupt another one, which holds the lock, and would wait for
// ever. So handlers must not touch shared memory by atomics either; an object in private memory, such as a thread-local
// one, may be used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/keep_errno.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/memory_access.h"
#include "profile/virtual_time.h"
#include "runtime/node.h"

namespace multigrain::threads {

enum class Reach : uint8_t {
  kPrivate,  // by instructions, as on one machine
  kPages,    // by instructions, and other nodes have the memory, too
  kLines,    // by instructions under a hazard
  kLocked,   // under a lock of Multigrain's
};

// Returns how an atomic operation reaches the object. Async-signal-safe.
[[nodiscard]] Reach reach_of(const void* object);

// Called before each operation on an object that other nodes have. In virtual time it is synchronisation like any other
// (profile/virtual_time.h, V3): a thread that waits by looking makes its clock known, for which others may wait.
inline void meet_others() {
  if (virtual_time::on()) virtual_time::synchronise();
}

// The object may be loaded and stored to, and no thread of any node makes an atomic operation on it, as long as this
// lives. Pre: reach_of(object) is kLocked.
class LockedObject {
 public:
  explicit LockedObject(const void* object);
  ~LockedObject();
  LockedObject(const LockedObject&) = delete;
  LockedObject& operator=(const LockedObject&) = delete;
  // Returns whether the object was moved to lines before the thread had the lock. Then it must not be touched under it, and
  // reach_of(object) is kLines from now on.
  [[nodiscard]] bool has_moved() const { return reach_of(object_) == Reach::kLines; }

 private:
  Sync& sync_;
  const void* const object_;
  const SyncId lock_;
};

// The node has the lines of the object to itself as long as this lives. Pre: reach_of(object) is kLines, and the
// thread waits for nothing meanwhile.
class ExclusiveLines {
 public:
  ExclusiveLines(const void* object, size_t size);
  ~ExclusiveLines() { checks::clear_hazards(); }
  ExclusiveLines(const ExclusiveLines&) = delete;
  ExclusiveLines& operator=(const ExclusiveLines&) = delete;
};

// Called after each operation on an object that other nodes have: `value` is what was found there, or a number made of
// it. A thread that finds the same again and again, and changes nothing, lets other threads run.
void looked_at(const void* object, uint64_t value, bool changed);

}  // namespace multigrain::threads
