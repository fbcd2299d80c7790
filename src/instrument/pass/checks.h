// The checks themselves: a load is compared with the flag value, a store is announced in a hazard
// (docs/internals/fine-grain.md).
#pragma once

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Puts checks to every access of the function that may reach shared memory and is not covered by a loop's hazards
// (loops.h). Runs last, when what is left in memory is the program's. Whether the function changed.
bool insert_checks(llvm::Function& function, llvm::AAResults& aliases);

// The note in the object file by which a run can tell that the code has checks (docs/internals/fine-grain.md).
void add_note(llvm::Module& module);

}  // namespace multigrain::checks
