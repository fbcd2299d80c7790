// With -fmultigrain-sequential, plain accesses keep the order that the program's text gives them. This pass makes them
// volatile for that.
#pragma once

#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Makes every plain access of the function that may reach shared memory a volatile one, so that no pass of the compiler
// or of this plugin moves it past another access, merges it with another access or leaves it out. It runs before all
// passes that would. Returns whether the function changed.
bool keep_accesses_in_order(llvm::Function& function);

}  // namespace multigrain::checks
