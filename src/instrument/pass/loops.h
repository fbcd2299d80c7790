// Hazards around loops: one check of what a loop will access instead of one for each access, early enough that the loop
// can still become vectors (docs/user/mgcc.md).
#pragma once

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// For each loop whose addresses are known before it begins: a copy that runs without checks, in pieces of bounded
// length, each with hazards published over what it accesses; and the loop as it was, for pieces whose hazards cannot be
// published, or are not worth it. Whether the function changed.
bool guard_loops(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

// The property of a loop's branch that says so (LLVM's loop metadata).
inline constexpr const char* kGuardedLoop = "multigrain.loop.done";

// Whether the loop was made by that, or left over.
bool is_guarded(const llvm::Loop& loop);

}  // namespace multigrain::checks
