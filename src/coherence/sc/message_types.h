// The types of the messages of sc in the fabric: kSc and its kind (states.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kSc = 0x20;
inline constexpr MessageType kScEnd = 0x30;

// To every home of the pages [word[0], word[0] + word[1]): the sender discards them.
inline constexpr MessageType kScDiscard = kScEnd - 2;
// From a home. word[0]: the page that it has cleared (MessageKind::kDiscarded); or, of the answer to kScDiscard, how many
// pages it will clear later.
inline constexpr MessageType kScDiscardSeen = kScEnd - 1;

}  // namespace multigrain::message_range
