// The devices that carry messages to other hosts.
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// Whether UCX can use each device of a list such as "eth0,mlx5_0:1" here: a network interface that is up and has an
// address, or a port of an adapter. The error names those that it can use. An empty list is good.
Status check_devices(const std::string& list);

}  // namespace multigrain
