// This pass lets a compare-and-swap loop get its line once, exclusively, before the loop loads from it ([Shasta],
// section 3.1.2): that is one miss instead of two.
#pragma once

#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// Puts a test in front of each loop with a compare-and-swap of one address, and in front of the load before the loop
// that the first comparison uses: if the address is shared and its line is not exclusive, the code calls the runtime.
// The test stands outside of the loop: inside, several processors could take the line from each other for ever. It runs
// before insert_checks(). Returns whether the function changed.
bool prefetch_for_loops(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

}  // namespace multigrain::checks
