// Arguments that point to private memory in every call: a function's helpers mostly work on its locals.
#pragma once

#include <llvm/IR/Module.h>

namespace multigrain::checks {

// Marks the arguments of functions whose callers are all known, and hand them private memory only (shared.h:
// may_be_shared). An inline function that other files have as well, but that nothing here takes the address of, becomes
// this file's own if that lets one of its arguments be marked. Whether the module changed.
bool mark_private_arguments(llvm::Module& module);

}  // namespace multigrain::checks
