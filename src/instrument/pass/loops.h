// This pass publishes hazards around loops: one check of all that a loop will access replaces the checks of its
// accesses. It runs early enough that the loop can still be vectorised (docs/user/mgcc.md).
#pragma once

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// Strip-mines each loop whose addresses are known before it begins (strip_mining.h). A copy of the loop runs a piece
// without checks, with hazards published over the memory that the piece accesses. The original loop runs the pieces
// whose hazards cannot be published, or are not worth it. Returns whether the function changed.
bool guard_loops(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

// Keeps loops that will get checks from being unrolled where the number of iterations is not known: the checks' branches
// stay, so that only the code would grow. It runs behind guard_loops().
void keep_checked_loops_short(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

// The property of a loop's branch (LLVM's loop metadata) that says that guard_loops() has handled the loop.
inline constexpr const char* kGuardedLoop = "multigrain.loop.done";

// Tells whether guard_loops() has made the loop, or has kept it as an original loop.
bool is_guarded(const llvm::Loop& loop);

}  // namespace multigrain::checks
