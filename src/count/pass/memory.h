// Reports of a function's accesses to memory, for the caches of the emulated machine (count/memory.h).
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Function.h>

namespace multigrain::count {

// Returns the function's own accesses to memory that may be shared: loads, stores, atomics, and copies and fills. Locals,
// constants and thread-local variables cannot be shared.
llvm::SmallVector<llvm::Instruction*> accesses_of(llvm::Function& function);

// Puts a report behind the access, which is one that accesses_of() has returned.
void report_access(llvm::Instruction& access);

}  // namespace multigrain::count
