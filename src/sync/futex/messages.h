// The messages of the futexes of a guest: the calls and answers of engine.h, and where a message carries
// each part of them.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kFutex = 0x50;
inline constexpr MessageType kFutexEnd = 0x60;

}  // namespace multigrain::message_range

namespace multigrain::futex_message {

enum : MessageType {
  // The caller's node asks the server. `flags` is a FutexCall, `small` the caller's slot, `extra` the bitset; the words
  // are the two keys, and the two counts.
  kCall = message_range::kFutex,
  // The server answers. `flags` is a FutexAnswer, `small` the caller's slot, `extra` the result.
  kAnswer,
  kEnd
};

}  // namespace multigrain::futex_message
