// This is the pass that puts the checks themselves into a function: loaded values are compared with the flag value, and
// stores are announced in hazards (docs/internals/fine-grain.md).
#pragma once

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Adds a check to every access of the function that may reach shared memory and is not covered by a loop's
// hazards (loops.h). It runs last, when only the program's own accesses to memory are left. Returns whether
// the function changed.
bool insert_checks(llvm::Function& function, llvm::AAResults& aliases);

// Adds the notes to the object file by which a run can tell that the code has checks, and whether it has gaps
// (docs/internals/fine-grain.md).
void add_notes(llvm::Module& module);
// Says that the function has a gap: code that may access shared memory without a check.
void note_gap(const llvm::Function& function);

}  // namespace multigrain::checks
