// These are placements and their cost, by the definitions of [Bolosky], sections 4.1.3 and 4.1.4.
//
// This is the plain implementation of the definitions. Tests compare the fast ones (optimal.h, policy.h) with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "trace/model/machine.h"
#include "trace/trace.h"

namespace multigrain::trace {

// These counts say what a placement does, and so what it costs on any machine (section 4.1.5): each is a slope of the
// cost.
struct CostParts {
  uint64_t local = 0;         // references to local memory, private ones included
  uint64_t global = 0;        // references to global memory
  uint64_t remote = 0;        // references to another processor's memory
  uint64_t remote_moves = 0;  // Phi: copies made at R
  uint64_t global_moves = 0;  // Gamma: copies made at G

  [[nodiscard]] uint64_t references() const { return local + global + remote; }
  [[nodiscard]] double cost(const Machine& machine) const;
  // Returns the mean cost per reference; 1 if there are none.
  [[nodiscard]] double mcpr(const Machine& machine) const;
  CostParts& operator+=(const CostParts& other);
  friend bool operator==(const CostParts&, const CostParts&) = default;
};

// This is P_t, which says where the copies of a block are.
struct CopySet {
  std::vector<ProcessorId> processors;  // in ascending order
  bool global = false;

  [[nodiscard]] size_t size() const { return processors.size() + (global ? 1 : 0); }
  [[nodiscard]] bool contains(ProcessorId processor) const;
  friend bool operator==(const CopySet&, const CopySet&) = default;
};

// This holds from reference number `position` of the trace on, until the block's next change.
struct PlacementChange {
  uint64_t position;
  uint64_t block;  // number: address / block size
  CopySet copies;
};

struct Placement {
  uint64_t block_size = 0;
  std::vector<PlacementChange>
      changes;  // in order of position; every block's first is no later than its first reference
};

// A reference belongs to the block of its first byte.
inline uint64_t block_of(const Reference& reference, uint64_t block_size) {
  return reference.address / block_size;
}

// Returns the cost by equations 4.1 and 4.2, summed over the blocks. An error names the position at which the placement
// is none: a block that is nowhere, a write while there are several copies (the coherence constraint), a memory that
// the machine does not have, a remote reference on a machine without. Private references are not in `references`: add
// them to `local`.
Result<CostParts> cost_of(const Placement& placement, std::span<const Reference> references, const Machine& machine);

}  // namespace multigrain::trace
