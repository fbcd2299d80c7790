// Which network interface of this machine has an address.
#pragma once

#include <string>

namespace multigrain {

// The name of the interface with that numeric address ("10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1"); empty: none has
// it, or it is no address.
std::string interface_with(const std::string& address);

}  // namespace multigrain
