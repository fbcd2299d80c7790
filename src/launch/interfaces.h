// Finds the network interface of this machine that has an address: so an agent uses the interface by which mgrun has
// reached it.
#pragma once

#include <string>

namespace multigrain {

// Returns the name of the interface with that numeric address ("10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1"). It is
// empty if no interface has the address, or the text is no address.
std::string interface_with(const std::string& address);

}  // namespace multigrain
