// This pass makes versions of loops for objects that turn out to be private.
//
// When a loop begins, the code can find out whether a pointer that it uses leads to shared memory, and that does not
// change while the loop runs. So loops over private memory, such as the counts of a sort, need not ask again for every
// access, nor compare the values that they load.
#pragma once

#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// Makes copies of innermost loops for the case that an object they access is private, and tests in front of the loops
// which case it is. What may_be_shared() returns for the copies' accesses relies on marks, until drop_marks() removes
// them. It runs before polls and checks are inserted. Returns whether the function changed.
bool make_versions_of_loops(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
void drop_marks(llvm::Function& function);

}  // namespace multigrain::checks
