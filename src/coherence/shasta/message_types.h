// In the fabric, the type of a Shasta message is kShasta plus the message's kind (states.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kShasta = 0x30;
inline constexpr MessageType kShastaEnd = 0x40;

}  // namespace multigrain::message_range
