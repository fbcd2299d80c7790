// The secret of the job: how the nodes come to share it, and the keys of pairs of nodes, which are drawn from it. (The
// key of the gates is drawn from it, too: gate_token.h.)
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/secret.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/wireup/wireup.h"

namespace multigrain::ucx {

// Node 0 draws the secret and gives it to the other nodes through the wire-up. Before that each node draws a pair of
// keys and publishes the public one, with which node 0 seals the secret for the node (X25519 and XSalsa20-Poly1305,
// libsodium's sealed box). So the secret is in no buffer of a launcher, of PMIx or of mgrun, and in no file that they
// keep. An attacker that could change what travels could still put a secret of its own in its place. All nodes call
// this together; it makes two exchanges. Errors: errors of the wire-up; a node has sent something else.
Status agree(Wireup& wireup, JobSecret& secret);

// Returns the key that node `from` must send with every message to node `to`.
[[nodiscard]] uint64_t pair_key(const JobSecret& secret, unsigned from, unsigned to);

}  // namespace multigrain::ucx
