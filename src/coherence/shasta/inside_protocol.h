// Whether the calling thread is inside the protocol, perhaps with a lock of it held.
#pragma once

#include "base/nesting_scope.h"

namespace multigrain::shasta {

// While it exists, polls and fences of a signal handler that interrupts the thread do nothing.
using InsideProtocol = NestingScope<struct InsideProtocolTag>;

}  // namespace multigrain::shasta
