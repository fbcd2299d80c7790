// Versions of loops for objects that turn out to be private.
//
// Whether a pointer that a function was handed, or has loaded, leads to shared memory is known when the loop that uses
// it begins: then it stays so. Loops over private memory, such as the counts of a sort, so need not ask for every access
// again, nor compare what they load.
#pragma once

#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

// Puts copies of innermost loops beside them, for the case that what they store to is private; which case it is is
// found out before. What may_be_shared() says of the copies' accesses relies on marks, until drop_marks(). Before
// polls and checks are inserted. Whether the function changed.
bool make_versions_of_loops(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
void drop_marks(llvm::Function& function);

}  // namespace multigrain::checks
