// The types of MGS's messages in the fabric: kMgs and its kind (states.h).
#pragma once

#include "fabric/fabric.h"

namespace multigrain::message_range {

inline constexpr MessageType kMgs = 0x10;
inline constexpr MessageType kMgsEnd = 0x20;

}  // namespace multigrain::message_range
