// Which of UCX's transports a run may use.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace multigrain::ucx {

// The transports of UCX_TLS, in UCX's own notation ("all", a list with commas, or ^ and a list of what to do without),
// without System V shared memory: its segments may be attached by everybody of the user's group, and one that was just
// made stays if its process is killed. `available`: the components of this UCX; a name that UCX stands for several
// transports with ("sm") is replaced by those of them that there are. Error: the user asks for System V by its name.
Result<std::string> without_system_v(std::string_view wanted, std::span<const std::string> available);

}  // namespace multigrain::ucx
