// A node that dies of a signal leaves a record in its status (status/node_status.h). The launcher turns the record into
// text with these functions.
#pragma once

#include <span>
#include <string>

#include "status/node_status.h"

namespace multigrain {

// Returns lines of text without a newline at the end, or an empty string if the node left no record. `others` are the
// statuses of all nodes whose memory is mapped in this process, this node's among them.
std::string describe_crash(const NodeStatus& node, std::span<const NodeStatus* const> others);

// Does the same for a mistake of the program because of which a processor of the node ended the run.
std::string describe_mistake(const NodeStatus& node, std::span<const NodeStatus* const> others);

}  // namespace multigrain
