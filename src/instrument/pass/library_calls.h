// Calls of functions that touch memory without checks: those of the C and C++ libraries.
#pragma once

#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

namespace multigrain::checks {

// Lets a call of a library's function that may be given a pointer to shared memory go to the function's wrapper
// (wrapped_functions.def). Of a function that has none it warns, if it is likely, and has the runtime look before the call
// whether a pointer is shared. Whether it changed.
bool redirect_library_call(llvm::CallBase& call);

// The same for a built-in function of the processor that accesses memory by itself.
bool look_at_intrinsic(llvm::IntrinsicInst& intrinsic);

// Pointers to such functions become pointers to their wrappers, so that calls through them are checked as well. Whether
// there were any.
bool redirect_function_pointers(llvm::Module& module);

}  // namespace multigrain::checks
