// The processor has no instruction for atomic accesses to objects of odd sizes, or to objects that are not aligned. The
// compiler calls its library for these. Compiled code calls wrappers instead (runtime/atomics.cpp), with the library's
// function as one more argument.
#pragma once

#include <llvm/IR/InstrTypes.h>

namespace multigrain::checks {

// Replaces `call` by a call of a wrapper if it calls the library for an object or operands that may be shared. Returns
// whether it did so.
bool redirect_atomic_call(llvm::CallBase& call);

// Replaces `instruction` by a call of a wrapper if it is an atomic load, store, update or exchange of an object that
// may be shared and is not aligned. The compiler would call its library for it, but only after this pass. Returns
// whether it replaced the instruction.
bool replace_unaligned_atomic(llvm::Instruction& instruction);

}  // namespace multigrain::checks
