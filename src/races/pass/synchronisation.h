// Has operations that order accesses tell the detector of compiled calls (races/compiled/abi.h).
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::races {

// Puts calls around the function's atomic operations and fences, around the calls that guard its static variables, and around those
// of POSIX's locks and semaphores. Returns whether there are any.
bool tell_of_synchronisation(llvm::Function& function);

}  // namespace multigrain::races
