// Where hazards around loops are published (loops.h), as found in the code that the optimiser has made of them.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/IR/Instruction.h>

namespace multigrain::checks {

// What lies between a call that publishes a loop's hazards successfully and those that clear them: it needs no checks, and
// must not poll.
llvm::DenseSet<const llvm::Instruction*> covered_by_hazards(llvm::Function& function);

}  // namespace multigrain::checks
