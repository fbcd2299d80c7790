// Calls of functions that touch memory without checks: the C library's.
#pragma once

#include <llvm/IR/InstrTypes.h>

namespace multigrain::checks {

// Lets a call of a known function of the C library that is given a pointer that may be shared go to the wrapper in
// src/instrument/runtime/memory_functions.h. Whether it changed.
bool redirect_library_call(llvm::CallBase& call);

}  // namespace multigrain::checks
