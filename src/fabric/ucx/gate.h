// The gate below UCX's TCP transport: a process that does not hold the job's secret gets no connection, in or out.
//
// UCX's TCP transport listens on a port of every interface that it uses and believes every process that connects, even
// if that process asks it to store at any address of the node's process. It has no place for a check. So the gate takes
// the place of the C library's socket calls in UCX's libraries (interposed_calls.h; no other code of the process is
// affected). The calls of confine.h are interposed with them. The gate's calls are:
//
//  connect  lets the connection come up, for at most kConnectLimitMs, and sends a token (gate_token.h) as its first
//           bytes.
//  listen   refuses a socket that is not bound to one address, of the chosen interface; has the kernel keep
//           connections to itself until their first bytes have come, so that the gate never sees silent peers.
//  accept   takes the token off the connection without waiting, sends the answer, and only then hands the connection
//           to UCX. If the token is wrong, short, foreign or repeated, the connection is closed, one line on standard
//           error says so, and the run goes on.
//  recv     on a connection that this node opened, takes the answer off first. A wrong answer breaks the connection: a
//           process that got hold of a node's port after the node's death cannot pass for the node.
//
// A token is good for one connection between the two addresses in it, once. So nodes must see each other's addresses as
// they are: there can be no address translation between them (UCX itself does not work through it either).
//
// A process has one gate. It decides which processes may speak, not what they say afterwards: nothing is encrypted, and
// the gate does not notice bytes that an attacker on the path injects into an open connection. docs/user/security.md
// describes the whole.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fabric/ucx/ucx_fabric.h"

namespace multigrain {

// Installs the gate, after UCX's libraries were loaded and before a UCX context exists. `interface` has the network
// devices on which UCX may listen, with commas between them; empty: any device. Several fabrics of one process may
// install it, with the same secret and interface. Errors: UCX's libraries are missing or not as expected; the secret or
// interface differs.
Status install_gate(const JobSecret& secret, unsigned node, std::string_view interface);

// Removes the gate when the last fabric that has installed it calls this. UCX's workers must be gone by then.
void remove_gate();

struct GateCounts {
  uint64_t listening = 0;        // sockets that came through listen
  uint64_t let_in = 0;           // connections from other nodes
  uint64_t refused = 0;          // connections from unauthenticated peers
  uint64_t called = 0;           // connections to other nodes
  uint64_t unauthenticated = 0;  // connections to peers that did not hold the secret
};
[[nodiscard]] GateCounts gate_counts();

}  // namespace multigrain
