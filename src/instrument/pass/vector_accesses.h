// Some built-in functions of x86 access memory lane by lane. The checks know only LLVM's general forms of such
// accesses, so this part of the pass replaces the former by the latter.
#pragma once

#include <llvm/IR/IntrinsicInst.h>

namespace multigrain::checks {

// Replaces a gather, scatter or masked access that is specific to x86, and may reach shared memory, by the general form
// (a masked load, store, gather or scatter, or a plain load). Returns the new access, which has no checks yet, or
// nullptr if the intrinsic is something else or its memory private.
llvm::Instruction* replace_vector_access(llvm::IntrinsicInst& intrinsic);

}  // namespace multigrain::checks
