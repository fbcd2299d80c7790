// The messages of src/sync. word[0] is the handle in all but kAnswer.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kSync = 0x40;
inline constexpr MessageType kSyncEnd = 0x50;

}  // namespace multigrain::message_range

namespace multigrain::sync_message {

enum : MessageType {
  kLockRequest = message_range::kSync,  // to the manager: the sender wants the token; extra: attempt, 0: not a try
  kLockForward,                         // small: the node that gets the token after the receiver; extra: its attempt
  kLockToken,                           //
  kLockBusy,                            // extra: the receiver's attempt that this answers
  kBarrierUp,                           // extra: episode
  kBarrierDown,                         // extra: episode
  kBarrierArrive,                       // counted barrier: a processor of the sender has arrived
  kBarrierDepart,                       // extra: how many processors of the receiver may go
  kCall,                                // flags: ServerCall; small: the caller's slot; extra: argument
  kAnswer,                              // flags: ServerAnswer; small: the caller's slot; extra: result
  kRecycle,                             // to the creator: the object was destroyed
  kLockWake,                            // network lock: it is at the receiver now, whose processor sleeps
  kEnd
};

}  // namespace multigrain::sync_message
