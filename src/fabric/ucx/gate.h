// The gate below UCX's TCP transport: a process that does not hold the job's secret gets no connection, in or out.
//
// UCX's TCP transport listens on a port of every interface it uses and believes every process that connects, down to
// stores at any address of the process. It has no place for a check. So the gate takes the place of the C library's
// socket calls in UCX's libraries (interposed_calls.h; no other code of the process is affected). The calls of
// confine.h are interposed with them. Those of the gate:
//
//  connect  lets the connection come up, for at most kConnectLimitMs, and sends a token (gate_token.h) as its first
//           bytes.
//  listen   refuses a socket that is not bound to one address, of the chosen interface; has the kernel keep
//           connections to itself until their first bytes have come, so that the gate never sees silent peers.
//  accept   takes the token off the connection without waiting, sends the answer, and only then hands the connection
//           to UCX. A wrong, short, foreign or repeated token: the connection is closed, one line says so, the run
//           goes on.
//  recv     on a connection that this node opened, takes the answer off first. A wrong one breaks the connection: a
//           process that got hold of a node's port after the node's death cannot pass for the node.
//
// A token is good for one connection between the two addresses in it, once. So nodes must see each other's addresses as
// they are: there can be no address translation between them (UCX itself does not work through it either).
//
// The gate belongs to the process. It decides who may speak, not what is said afterwards: nothing is encrypted, and
// bytes that somebody on the path injects into an open connection are not noticed. docs/user/security.md has the whole.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "fabric/ucx/ucx_fabric.h"

namespace multigrain {

// Puts the gate in, after UCX's libraries were loaded and before a UCX context exists. `interface`: the network devices
// that may be listened on, with commas between them; empty: any. Several fabrics of one process may ask for it, with
// the same secret and interface. Errors: UCX's libraries are not there or are not as expected; another secret.
Status install_gate(const JobSecret& secret, unsigned node, std::string_view interface);

// Takes it out with the last of the fabrics that asked for it: after UCX's workers are gone.
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
