// Says in a module that it belongs to a program of threads.
#pragma once

#include <llvm/IR/Module.h>

namespace multigrain::threads {

// Adds the constant MG_THREADS_MARKER (threads/abi.h), by which the runtime recognises such a program.
void add_marker(llvm::Module& module);

}  // namespace multigrain::threads
