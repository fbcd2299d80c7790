// Short copies and fills of memory that may be shared, as loads and stores.
#pragma once

#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// Those of a few words, unless they are covered by hazards. What they go through (the local in the middle of a swap) is
// kept in registers then, where anything is optimised. Before checks are inserted. Whether the function changed.
bool expand_short_copies(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

}  // namespace multigrain::checks
