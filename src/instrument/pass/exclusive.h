// Compare-and-swap loops get their line once, for storing, before they load from it ([Shasta], section 3.1.2).
#pragma once

#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// In front of each loop with a compare-and-swap of one address, and of the load before the loop that the first
// comparison is made with: if the address is shared and its line not exclusive, a call of the runtime. Once, outside of
// the loop: inside, several processors could take the line from each other for ever. Before insert_checks(). Whether
// the function changed.
bool prefetch_for_loops(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

}  // namespace multigrain::checks
