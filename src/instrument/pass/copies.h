// This pass turns short copies and fills of memory that may be shared into loads and stores, because a checked access
// in line costs less than a call of the runtime.
#pragma once

#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// Expands copies and fills of a few words, unless hazards cover them. If the function is optimised, locals through
// which they go (such as the one in the middle of a swap) become registers then. It runs before checks are inserted.
// Returns whether the function changed.
bool expand_short_copies(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

}  // namespace multigrain::checks
