// In the fabric, the type of a message of sc is kSc plus the message's kind (states.h), or one of those of discards.
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kSc = 0x20;
inline constexpr MessageType kScEnd = 0x30;

// This is sent to every node: the sender discards the pages [word[0], word[0] + word[1]).
inline constexpr MessageType kScDiscard = kScEnd - 2;
// This is a node's answer to kScDiscard. word[0] is how many pages it will clear later; MessageKind::kDiscarded says
// when.
inline constexpr MessageType kScDiscardSeen = kScEnd - 1;

}  // namespace multigrain::message_range
