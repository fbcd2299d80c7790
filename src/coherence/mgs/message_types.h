// In the fabric, the type of an MGS message is kMgs plus the message's kind (states.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kMgs = 0x10;
inline constexpr MessageType kMgsEnd = 0x20;

}  // namespace multigrain::message_range
