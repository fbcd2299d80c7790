// Wire-up: how the nodes of a run learn of each other before the fabric can carry anything.
//
// The launcher's own channel does it, whichever the launcher is: mgrun over a descriptor that the node inherits
// (launcher_wireup.h), Open MPI's mpirun and Slurm over PMIx, MPICH's mpirun and Slurm over PMI-2. That channel is what
// the run trusts: it is the launcher that says which process is which node, and what travels here nobody else can
// change (ssh, munge, or a socket pair). So the secret of the job is spread by it, sealed (fabric/ucx/job_secret.h).
//
// Used during start-up by one thread, from ordinary code.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace multigrain {

// What a node tells the others. Opaque here.
using Card = std::vector<std::byte>;

class Wireup {
 public:
  static constexpr size_t kMaxCard = 64 * 1024;  // bytes

  virtual ~Wireup() = default;

  [[nodiscard]] virtual NodeId self() const = 0;
  [[nodiscard]] virtual unsigned nodes() const = 0;

  // Gives this node's card and returns everybody's, in the order of nodes. Collective: the n-th call of each node meets
  // the n-th of the others. Errors: a node that did not come within `timeout` (which one, where that is known), a
  // launcher that is gone, a card that is too long.
  virtual Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds timeout) = 0;

  // The wire-up is over: the launcher's library is told so, and let go. What follows is the launcher's affair only as
  // far as it watches processes. Nothing but end_descriptor() may be used afterwards.
  virtual Status finish() = 0;

  // A descriptor that becomes readable, during the run, when the launcher is gone or wants this node to end; -1 if this
  // launcher ends its processes by itself. Valid as long as this object.
  [[nodiscard]] virtual int end_descriptor() const { return -1; }
};

// The wire-up that MULTIGRAIN_WIREUP names: "fd:N", "pmix" or "pmi2". Its library is loaded only now.
Result<std::unique_ptr<Wireup>> open_wireup(std::string_view name);

}  // namespace multigrain
