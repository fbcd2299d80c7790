// The network devices that carry messages to other hosts. mgrun and the ucx fabric check the devices that a user names,
// because UCX would only warn of a device that it does not know, and take another.
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// Checks that UCX can use each device of a list such as "eth0,mlx5_0:1" on this host: a network interface that is up
// and has an address, or a port of an adapter. The error names the devices that UCX can use. An empty list is good.
Status check_devices(const std::string& list);

}  // namespace multigrain
