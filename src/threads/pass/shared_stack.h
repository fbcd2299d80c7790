// Threads of other nodes cannot reach the stack of a thread. So local variables whose addresses other threads may get
// are put onto a second stack, which the runtime has in shared memory (MG_THREADS_STACK_POINTER): the unsafe stack of
// Clang's SafeStack, whose interface this is. SafeStack itself moves more than is needed here: every array with an index
// that is not proved to be inside. In shared memory that is not cheap, since each release makes diffs of what a node has
// written there. And it leaves behind what a function only reads, which is not needed where all threads share all stacks.
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::threads {

// Moves those variables of the function. Returns whether it did anything.
bool move_to_shared_stack(llvm::Function& function);

}  // namespace multigrain::threads
