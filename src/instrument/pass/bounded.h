// Loops that end soon whatever their numbers are, though nobody knows when.
#pragma once

#include <llvm/Analysis/LoopInfo.h>

namespace multigrain::checks {

// The greatest number of iterations of a loop that shifts a number until no bit of it is left, or an earlier end: on the
// bits of an index, say. 0: it is no such loop.
unsigned most_iterations_of_shifts(const llvm::Loop& loop);

}  // namespace multigrain::checks
