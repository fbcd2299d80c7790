// Which functions of libraries use a pointer only while they run, and hand it to no other thread. Of most of them Clang
// knows no such thing, nothing at -O0; and a local variable that one of them is handed need not be in shared memory,
// where the kernel could not store into it before a processor has touched it.
#pragma once

#include <llvm/IR/InstrTypes.h>

namespace multigrain::threads {

// Returns whether the call has this argument for such a use.
bool only_uses_argument(const llvm::CallBase& call, unsigned argument);

}  // namespace multigrain::threads
