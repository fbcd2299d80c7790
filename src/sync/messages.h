// The messages of src/sync: how the nodes' locks, barriers, conditions, semaphores and flags talk to each other. In all
// of them but kAnswer, word[0] is the object's handle.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kSync = 0x40;
inline constexpr MessageType kSyncEnd = 0x50;

}  // namespace multigrain::message_range

namespace multigrain::sync_message {

enum : MessageType {
  // The sender asks the manager for the token. `extra` is the number of its attempt, or 0 if the
  // request is not a try's.
  kLockRequest = message_range::kSync,
  // The manager tells the receiver which node (`small`) gets the token after it. `extra` is that node's attempt.
  kLockForward,
  // The sender passes the lock to the receiver.
  kLockToken,
  // The sender cannot pass the lock now. `extra` is the receiver's attempt that this answers.
  kLockBusy,
  kBarrierUp,    // to the parent; extra: the episode
  kBarrierDown,  // to the children; extra: the episode
  // A processor of the sender has arrived at a counted barrier.
  kBarrierArrive,
  // Processors of the receiver may leave a counted barrier; `extra` is how many.
  kBarrierDepart,
  // The sender calls an object's manager. `flags` is a ServerCall, `small` the caller's slot, `extra` the argument.
  kCall,
  // The manager answers. `flags` is a ServerAnswer, `small` the caller's slot, `extra` the result.
  kAnswer,
  // The sender tells the object's creator that the object was destroyed.
  kRecycle,
  // A network lock is at the receiver now, and the receiver's processor that waits for it sleeps.
  kLockWake,
  // The sender waits for a network lock whose release was deferred at the receiver.
  kLockWanted,
  kEnd
};

}  // namespace multigrain::sync_message
