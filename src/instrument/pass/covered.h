// Where windows around loops are open (loops.h), as found in the code that the optimiser has made of them.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/IR/Instruction.h>

namespace multigrain::checks {

// What lies between a call that opens a loop's windows successfully and those that close them: it needs no checks, and
// must not poll.
llvm::DenseSet<const llvm::Instruction*> covered_by_windows(llvm::Function& function);

}  // namespace multigrain::checks
