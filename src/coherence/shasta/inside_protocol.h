// This marks that the calling thread is inside the protocol, perhaps with a lock of it held.
#pragma once

#include "base/nesting_scope.h"

namespace multigrain::shasta {

// While such an object exists, polls and fences of a signal handler that interrupts the thread do nothing.
using InsideProtocol = NestingScope<struct InsideProtocolTag>;

}  // namespace multigrain::shasta
