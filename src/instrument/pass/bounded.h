// Some loops end soon whatever numbers they work on, although the compiler does not know after how many iterations.
// Such a loop needs no polls, and its iterations need not be counted under the loop hazard.
#pragma once

#include <llvm/Analysis/LoopInfo.h>

namespace multigrain::checks {

// Returns the greatest number of iterations of a loop that shifts a number until no bit of it is left, or until an
// earlier end, such as a loop over the bits of an index. Returns 0 for every other loop.
unsigned most_iterations_of_shifts(const llvm::Loop& loop);

}  // namespace multigrain::checks
