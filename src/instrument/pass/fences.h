// Fences: before what releases, the stores of this node become visible to all (LineProtocol::fence).
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::checks {

// In front of every atomic and every fence of release order, of every sequentially consistent one, and of calls by
// which another thread may go on: a look at __multigrain_outstanding (instrument/abi.h). Before insert_checks(), which
// forgets orders. Whether the function changed.
bool insert_fences(llvm::Function& function);

}  // namespace multigrain::checks
