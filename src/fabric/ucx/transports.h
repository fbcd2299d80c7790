// The transports of UCX that a run may use: those that the user allows, without System V shared memory.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace multigrain::ucx {

// Returns the transports of UCX_TLS, in UCX's own notation ("all", a list with commas, or ^ and a list of transports to
// leave out), without System V shared memory: every process of the user's group may attach its segments, and a segment
// that was just made stays if its process is killed. `available` has the components of this UCX; a name by which UCX
// means several transports ("sm") is replaced by those of them that are available. Error: the user asks for System V by
// its name.
Result<std::string> without_system_v(std::string_view wanted, std::span<const std::string> available);

}  // namespace multigrain::ucx
