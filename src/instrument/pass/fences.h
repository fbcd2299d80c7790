// This pass inserts fences: before a release operation, the stores of this node become visible to all nodes
// (LineProtocol::fence). Protocols that delay stores need that.
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::checks {

inline constexpr const char* kFenceMiss = "__multigrain_fence_miss";

// Puts a test of __multigrain_outstanding (instrument/abi.h) in front of every atomic and every fence of release order,
// of every sequentially consistent one, and of calls that let another thread go on. It runs before insert_checks(),
// which makes all atomics sequentially consistent. Returns whether the function changed.
bool insert_fences(llvm::Function& function);

}  // namespace multigrain::checks
