// The network interfaces of this machine.
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// The name of the interface with that numeric address ("10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1"); empty: none has
// it, or it is no address.
std::string interface_with(const std::string& address);

// Whether UCX can use each device of a list such as "eth0,mlx5_0:1" here: a network interface that is up and has an
// address, or a port of an adapter. The error names those that it can use. An empty list is good.
Status check_devices(const std::string& list);

}  // namespace multigrain
