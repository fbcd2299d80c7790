// Loops in which a processor waits for another's store.
#pragma once

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Lets each iteration of a loop that does nothing but look at memory until that changes call __multigrain_spin(). Runs
// before checks are inserted. Whether the function changed.
bool announce_spins(llvm::Function& function, llvm::LoopInfo& loops);

}  // namespace multigrain::checks
