// The messages of the futexes of a guest (engine.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kFutex = 0x50;
inline constexpr MessageType kFutexEnd = 0x60;

}  // namespace multigrain::message_range

namespace multigrain::futex_message {

enum : MessageType {
  // To the server. flags: FutexCall; small: the caller's slot; extra: bitset; words: the two keys, and the two counts.
  kCall = message_range::kFutex,
  kAnswer,  // flags: FutexAnswer; small: the slot; extra: result
  kEnd
};

}  // namespace multigrain::futex_message
