// Compiled translation (docs/internals/mgs.md): before each access that may be shared, code looks its page up in the translation
// table of its thread.
#pragma once

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Module.h>

namespace multigrain::checks {

// Puts a look-up before every access of the function that may reach shared memory. It runs last, as insert_checks() does, in
// whose place it is. Returns whether the function changed.
bool translate_accesses(llvm::Function& function, llvm::AAResults& aliases);

// Adds the note to the object file by which a run can tell that the code translates its accesses.
void add_note_of_translation(llvm::Module& module);

}  // namespace multigrain::checks
