// Built-in functions of x86 that access memory lane by lane.
#pragma once

#include <llvm/IR/IntrinsicInst.h>

namespace multigrain::checks {

// Puts what does the same for every processor (a masked load, store, gather or scatter, or a plain load) in the place of a
// gather, scatter or masked access that x86 alone has, if it may reach shared memory. Returns that, which has no checks
// yet; nullptr: it is something else, or private.
llvm::Instruction* replace_vector_access(llvm::IntrinsicInst& intrinsic);

}  // namespace multigrain::checks
