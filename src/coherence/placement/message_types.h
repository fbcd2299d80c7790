// In the fabric, the type of a message of placement is kPlacement plus the message's kind (states.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kPlacement = 0xa0;
inline constexpr MessageType kPlacementEnd = 0xb0;

}  // namespace multigrain::message_range
