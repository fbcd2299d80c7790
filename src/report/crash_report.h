// What a node that died of a signal left in its status (status/node_status.h), as text.
#pragma once

#include <span>
#include <string>

#include "status/node_status.h"

namespace multigrain {

// Lines without an end, or nothing if the node left no record. `others`: the statuses of all nodes whose memory is
// here, this one among them.
std::string describe_crash(const NodeStatus& node, std::span<const NodeStatus* const> others);

// The same of a mistake for which a processor of the node ended the run.
std::string describe_mistake(const NodeStatus& node, std::span<const NodeStatus* const> others);

}  // namespace multigrain
