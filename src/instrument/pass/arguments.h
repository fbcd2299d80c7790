// This pass finds pointer arguments that lead to private memory in every call of a function, because a function's
// helpers mostly work on its locals. Accesses through such arguments need no checks.
#pragma once

#include <llvm/IR/Module.h>

namespace multigrain::checks {

// Marks the arguments of functions whose callers are all known and pass private memory only (shared.h: may_be_shared).
// An inline function that other files have as well becomes this file's own if nothing in the file takes its address,
// and if that lets one of its arguments be marked. Returns whether the module changed.
bool mark_private_arguments(llvm::Module& module);

}  // namespace multigrain::checks
