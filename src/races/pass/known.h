// Has code look whether an access is known before it calls the detector of compiled calls (races/compiled/recent.h).
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::races {

// Puts a test of the thread's table around each call of the function that tells of an access of 1 to 16 bytes.
void look_before_calls(llvm::Function& function);

}  // namespace multigrain::races
