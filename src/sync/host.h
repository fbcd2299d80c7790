// What synchronisation asks of the runtime. The runtime implements it; tests implement it with a toy memory.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "fabric/wait.h"

namespace multigrain {

// What a processor is doing while it is inside a synchronisation call; the profile maps these to its categories.
enum class SyncActivity : uint8_t {
  kLock,     // locks, conditions, semaphores and flags
  kBarrier,  // barriers
};

class SyncHost {
 public:
  virtual ~SyncHost() = default;

  // The release operation of eager release consistency ([MGS], section 3.1.2): makes every write that the calling
  // thread has made, or has seen of other processors of its node, visible to all nodes, and returns when it is. That
  // includes writes whose flush another processor of the node has begun and not finished. Called with no lock of the
  // runtime held; may wait and may handle messages. Must be cheap (tens of nanoseconds) when nothing is dirty.
  virtual void release() = 0;

  // Makes the writes that the calling thread itself has made visible to the other processors of its node. Called before
  // every hand-over inside the node, for which nothing is released; as release() otherwise. Where processors of a node
  // always see each other's writes there is nothing to do.
  virtual void drain_store_buffer() {}

  // The acquire operation of lazy release consistency: what the calling thread does from now on sees what node `from`
  // had released, or acquired itself, when it let go what the caller has taken. Called with no lock of the runtime
  // held. Under eager release consistency there is nothing to do.
  virtual void acquire(NodeId from) { static_cast<void>(from); }
  // The same for what all nodes have released, where it is not known who preceded the caller.
  virtual void acquire_all() {}

  // The same two at a barrier of all processors of the run: release_at_barrier() is called by the last processor of the
  // node to arrive, acquire_at_barrier() by each when all have.
  virtual void release_at_barrier() { release(); }
  virtual void acquire_at_barrier() { acquire_all(); }

  // The caller waits at a barrier: it may take part in what other processors of its node have to do there. Called over
  // and over, with no lock of the runtime held; nearly free if there is nothing to do.
  virtual void help() {}

  // How long to poll before blocking. The reference stays valid and its contents constant.
  [[nodiscard]] virtual const WaitPolicy& wait_policy() const = 0;

  // Brackets around the part of a call that is slow enough to account for: the calling processor enters the activity,
  // and leaves it for what it did before. Calls may nest (a condition wait contains a lock). Locking and unlocking a
  // lock whose token is here and that nobody else wants is not bracketed, nor is the release() of such an unlock; every
  // other release() is called inside the brackets.
  virtual void enter(SyncActivity activity) = 0;
  virtual void leave() = 0;
};

}  // namespace multigrain
