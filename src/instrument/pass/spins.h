// A processor that waits in a loop for another processor's store should give up its core, and make its virtual time
// known. This pass finds such loops and lets them call the runtime.
#pragma once

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Lets each iteration of a loop that only looks at memory until the memory changes call __multigrain_spin(). It runs
// before checks are inserted. Returns whether the function changed.
bool announce_spins(llvm::Function& function, llvm::LoopInfo& loops);

}  // namespace multigrain::checks
