// References by checks (docs/internals/placement.md): before each access that may be shared, code looks whether the page is in
// another node's memory, and then has the runtime make the access there.
#pragma once

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Puts a check before every access of the function that may reach shared memory. It runs last, as insert_checks() does, in whose
// place it is. Returns whether the function changed.
bool check_references(llvm::Function& function, llvm::AAResults& aliases);

}  // namespace multigrain::checks
