// Says which local variables other threads may reach.
#pragma once

#include <llvm/IR/Module.h>

namespace multigrain::threads {

// Takes from the module the promises by which the optimiser would find out that a thread's creator gets an address and
// does not keep it: that the address is not captured says nothing here, because other threads use it before the call
// returns. Runs before the optimiser derives attributes of functions from others.
void forget_callbacks(llvm::Module& module);

// Returns whether the address of `local`, an alloca or an argument that is passed by value, may be known outside of its
// function and of functions that only use it while they run.
bool may_be_reached(const llvm::Value& local);

// Returns whether only the calling thread, or threads of its node, can have a use for this memory: a local variable that
// nobody else can reach, or a thread-local one.
bool is_private(const llvm::Value& pointer);

}  // namespace multigrain::threads
