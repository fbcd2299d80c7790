// The functions of the C and C++ libraries access memory without checks. This part of the pass lets compiled code call
// wrappers instead where a pointer may be shared, or warns of the call.
#pragma once

#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

namespace multigrain::checks {

// Redirects a call of a library's function to the function's wrapper (wrapped_functions.def) if the call may be given a
// pointer to shared memory. If the function has no wrapper, it warns where such a pointer is likely, and lets the
// runtime test before the call whether a pointer is shared. Returns whether the call changed.
bool redirect_library_call(llvm::CallBase& call);

// Warns of, and tests the pointers of, a built-in function of the processor that accesses memory by itself. Returns
// whether it inserted a test.
bool look_at_intrinsic(llvm::IntrinsicInst& intrinsic);

// Replaces pointers to library functions by pointers to their wrappers, so that calls through them are checked as well.
// Returns whether there were any.
bool redirect_function_pointers(llvm::Module& module);

}  // namespace multigrain::checks
