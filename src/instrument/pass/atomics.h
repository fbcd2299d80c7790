// Atomics that no instruction does: objects of odd sizes, and such as are not aligned. The compiler calls its library for
// them; compiled code calls the library's wrappers (runtime/atomics.cpp), with the library's function as one more argument.
#pragma once

#include <llvm/IR/InstrTypes.h>

namespace multigrain::checks {

// A call of the library whose object or operands may be shared. Whether it was one, and is replaced.
bool redirect_atomic_call(llvm::CallBase& call);

// An atomic load, store, update or exchange of what may be shared and is not aligned: the compiler would call its library
// for it, but only later. Whether it was one, and is replaced.
bool replace_unaligned_atomic(llvm::Instruction& instruction);

}  // namespace multigrain::checks
