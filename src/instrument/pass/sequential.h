// -fmultigrain-sequential: plain accesses keep the order that the program's text gives them.
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Makes every plain access of the function that may reach shared memory a volatile one, so that no pass of the compiler,
// this plugin's included, moves it past another one, merges it with another one or leaves it out. It runs before all passes
// that would. Returns whether the function changed.
bool keep_accesses_in_order(llvm::Function& function);

}  // namespace multigrain::checks
