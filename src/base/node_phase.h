// What a node tells its launcher through its `ready` word in the job memory, beside the phases of start-up.
#pragma once

#include <cstdint>

namespace multigrain {

// The node has been told to end by node 0, or is node 0 and ends in order. A node that attached to the job and exits
// with status 0 without having said so ended before its time, and the launcher ends the run.
inline constexpr uint32_t kNodeEnding = ~uint32_t{0};

}  // namespace multigrain
