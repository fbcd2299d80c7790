// The secret of the job: how the nodes come to share it, and what is drawn from it besides the key of the gates.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/secret.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/wireup/wireup.h"

namespace multigrain::ucx {

// Node 0 draws the secret and gives it to the others through the wire-up. Each node draws a pair of keys for this first
// and shows the public one; the secret travels sealed with that (X25519 and XSalsa20-Poly1305, libsodium's sealed box).
// So it is in no buffer of a launcher, of PMIx's or of mgrun's, and in no file that they keep. An attacker that could
// change what travels could still put a secret of its own in its place. Collective: two exchanges. Errors: those of the
// wire-up; a node has sent something else.
Status agree(Wireup& wireup, JobSecret& secret);

// What node `from` must send with everything to node `to`.
[[nodiscard]] uint64_t pair_key(const JobSecret& secret, unsigned from, unsigned to);

}  // namespace multigrain::ucx
