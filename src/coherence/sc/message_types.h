// The types of the messages of sc in the fabric: kSc and its kind (states.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kSc = 0x20;
inline constexpr MessageType kScEnd = 0x30;

}  // namespace multigrain::message_range
