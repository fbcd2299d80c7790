// Wire-up: by it the nodes of a run learn of each other before the fabric can carry anything.
//
// It uses the launcher's own channel: mgrun's is a descriptor that the node inherits (launcher_wireup.h), that of Open
// MPI's mpirun and of Slurm is PMIx, and that of MPICH's mpirun and of Slurm is PMI-2. The run trusts this channel: the
// launcher says which process is which node, and only it can change what travels here (ssh, munge, or a socket pair).
// So the secret of the job travels over it, sealed (fabric/ucx/job_secret.h).
//
// One thread uses it during start-up, from ordinary code.
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

// The bytes that a node gives to all nodes in an exchange. They mean nothing to the wire-up.
using Card = std::vector<std::byte>;

class Wireup {
 public:
  static constexpr size_t kMaxCard = 64 * 1024;  // bytes

  virtual ~Wireup() = default;

  [[nodiscard]] virtual NodeId self() const = 0;
  [[nodiscard]] virtual unsigned nodes() const = 0;

  // Gives this node's card to all nodes and returns the cards of all, in the order of nodes. All nodes call this
  // together: the n-th call of each node meets the n-th calls of the other nodes. Errors: a node did not call within
  // `timeout` (the message names it, where that is known); the launcher is gone; a card is too long.
  virtual Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds timeout) = 0;

  // Ends the wire-up: tells the launcher's library so, and releases it. Afterwards the launcher only watches the run's
  // processes, and the caller may use nothing here but end_descriptor().
  virtual Status finish() = 0;

  // Returns a descriptor that becomes readable, during the run, when the launcher is gone or wants this node to end; -1
  // if this launcher ends its processes by itself. It is valid as long as this object exists.
  [[nodiscard]] virtual int end_descriptor() const { return -1; }
};

// Opens the wire-up that MULTIGRAIN_WIREUP names: "fd:N", "pmix" or "pmi2". This call loads its library.
Result<std::unique_ptr<Wireup>> open_wireup(std::string_view name);

}  // namespace multigrain
