// The interface through which src/sync calls the runtime: releases and acquires of memory, and the accounting of time.
// The runtime implements it; tests implement it with a toy memory, so that they need no protocol and no pages.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "fabric/wait.h"

namespace multigrain {

// The kinds of synchronisation in which a processor can be; the profile maps them to its categories.
enum class SyncActivity : uint8_t {
  kLock,     // locks, conditions, semaphores and flags
  kBarrier,  // barriers
};

class SyncHost {
 public:
  virtual ~SyncHost() = default;

  // The release operation of eager release consistency ([MGS], section 3.1.2): makes every write that the calling
  // thread has made, or has seen of other processors of its node, visible to all nodes, and returns when it is.
  // That includes writes whose flush another processor of the node has begun and not finished. The caller holds no
  // lock of the runtime; the function may wait and may handle messages. It must be cheap (tens of nanoseconds)
  // when nothing is dirty.
  virtual void release() = 0;
  // Returns whether release() would do anything, as far as is known without waiting.
  [[nodiscard]] virtual bool owes_release() const { return true; }

  // Does the part of release() that only the calling thread can do, which is also what drain_store_buffer() does. After it,
  // release() of any thread of the node does the rest, for all processors that have called this. Sync calls it only if
  // its options say that releases may be deferred.
  virtual void release_own_part() { drain_store_buffer(); }

  // Makes the writes that the calling thread itself has made visible to the other processors of its node. Sync calls it
  // before every hand-over inside the node, because such a hand-over releases nothing. In all else it is like
  // release(). Where processors of a node always see each other's writes there is nothing to do.
  virtual void drain_store_buffer() {}

  // The acquire operation of lazy release consistency. After it the calling thread sees everything that node `from` had
  // released or acquired by the time at which it let go of the object that the caller has taken. The caller holds no
  // lock of the runtime. Under eager release consistency there is nothing to do.
  virtual void acquire(NodeId from) { static_cast<void>(from); }
  // Acquires what all nodes have released. Sync calls it where it does not know which node preceded the caller.
  virtual void acquire_all() {}

  // The release and the acquire at a barrier of all processors of the run. The last processor of the node to arrive
  // calls release_at_barrier(); each processor calls acquire_at_barrier() when all have arrived.
  virtual void release_at_barrier() { release(); }
  virtual void acquire_at_barrier() { acquire_all(); }

  // Returns whether nodes hand on what they have to learn of each other along the tree of such a barrier: the same on every node,
  // at all times. Then the last processor of the node to arrive calls gather_at_barrier() when all `children` have returned
  // from it, and learn_at_barrier() when `parent` has returned from that: the root when it has gathered, with itself as parent.
  // `spreads`: this node has children. Both may wait.
  [[nodiscard]] virtual bool gathers_at_barrier() const { return false; }
  virtual void gather_at_barrier(std::span<const NodeId> children) { static_cast<void>(children); }
  virtual void learn_at_barrier(NodeId parent, bool spreads) { static_cast<void>(parent), static_cast<void>(spreads); }

  // Returns whether the calling processor may take part in a rendezvous (rendezvous.h): all threads of the program on this node that
  // access shared memory are processors.
  [[nodiscard]] virtual bool may_meet() const { return true; }

  // Lets a caller that waits at a barrier take part in what other processors of its node have to do there. Sync calls
  // it over and over, with no lock of the runtime held, so it must be nearly free if there is nothing to do.
  virtual void help() {}

  // Returns how long a wait polls before it blocks. The reference stays valid and its contents constant.
  [[nodiscard]] virtual const WaitPolicy& wait_policy() const = 0;

  // These two bracket the part of a call that is slow enough to account for: enter() says that the calling processor
  // begins the activity, and leave() that it goes back to what it did before. Calls may nest (a condition wait contains
  // a lock). Locking and unlocking a lock whose token is here and that no other processor wants is not bracketed, nor
  // is the release() of such an unlock; every other release() is called inside the brackets.
  virtual void enter(SyncActivity activity) = 0;
  virtual void leave() = 0;
};

}  // namespace multigrain
