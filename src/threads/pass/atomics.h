// Under page protocols an atomic instruction changes the node's own copy of a page, where another node's change is not.
// So atomic operations on what other nodes may have become calls of the runtime (threads/atomics.h).
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::threads {

// Replaces the function's atomic loads, stores, updates and exchanges, and adds calls at its fences. Returns whether it
// did anything.
bool call_runtime_for_atomics(llvm::Function& function);

}  // namespace multigrain::threads
