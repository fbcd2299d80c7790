// This computes optimal placement: the cost of the best conceivable placement of every block of a trace, with future
// knowledge ([Bolosky], sections 4.1.5 and 4.2), for many machines and block sizes in one pass.
//
// docs/internals/optimal-placement.md derives the algorithm, and its extension to global memory with replication. In
// short: an optimal placement need only ever move a block to the processor that refers to it (an idea that [Bolosky]
// credits to Dietz), so the cheapest way to have the block at any other processor grows by the same amount, which is
// kept once. A reference takes O(1) steps (amortised, with replication), whatever the number of processors is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "trace/model/machine.h"
#include "trace/model/pass.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct OptimalOptions : PassOptions {
  // Without replication, every reference is treated as a write, as in [Bolosky], section 4.2.1.
  bool replication = true;
  // Equation 4.2 of [Bolosky] charges nothing for P_0, which may be several copies if the block is read before it is
  // written. With single_start, P_0 has one memory, as the algorithm of Figure 4.3 assumes.
  bool single_start = false;
  // The results keep so many of the most expensive blocks of each machine, by their cost above that of local
  // references; 0: none. That takes 32 more bytes for each block and machine.
  unsigned hot_blocks = 0;
};

// This is what one block costs.
struct BlockCost {
  uint64_t block = 0;  // number: address / block size
  uint64_t references = 0;
  double cost = 0;     // the cost in the optimal placement
  uint64_t moves = 0;  // moves between processors, and to or from global memory
  [[nodiscard]] double excess() const { return cost - static_cast<double>(references); }
};

struct OptimalResult {
  Machine machine;  // with the number of processors filled in
  double cost = 0;  // private references included
  double mcpr = 1;
  CostParts parts;  // private references included
  uint64_t references = 0;
  uint64_t private_references = 0;
  uint64_t blocks = 0;         // how many blocks the trace touches
  std::vector<BlockCost> hot;  // in descending order of excess()
  uint64_t bytes = 0;          // memory for the states of this machine's blocks, with its share of what machines share
  [[nodiscard]] uint64_t moves() const { return parts.remote_moves + parts.global_moves; }
};

// Returns whether the optimal placement of this machine can be computed: valid and, with global memory and replication,
// G <= R (see docs/internals/optimal-placement.md: without it the order of the reads between two writes would matter).
Status validate_optimal(const Machine& machine, const OptimalOptions& options);

// Returns r and g as the algorithms may take them. Above 2R + 1 a remote reference is never worth it (fetching the
// block and sending it back costs less), however expensive it is; so infinite ones become finite. The same for g and G;
// g is 0 without global memory.
double effective_r(const Machine& machine);
double effective_g(const Machine& machine);

// Makes one pass over `source`. Returns a result for each machine, in their order. Machines with processors = 0 have
// those of the trace; a trace with a processor out of range of its header, or of the machine's, is an error.
Result<std::vector<OptimalResult>> optimal(TraceSource& source, std::span<const Machine> machines,
                                           const OptimalOptions& options = {});

// Returns an optimal placement itself, of the blocks in `blocks` (all if it is empty). Positions are indices into
// `references`. This takes time and memory in proportion to references and, for blocks with writes, processors.
Result<Placement> optimal_placement(std::span<const Reference> references, const Machine& machine,
                                    const OptimalOptions& options = {}, std::span<const uint64_t> blocks = {});

}  // namespace multigrain::trace
