// Hazards around loops are published before the optimiser goes on (loops.h). This analysis finds the instructions that
// they cover in the code that the optimiser has made since.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/IR/Instruction.h>

namespace multigrain::checks {

// Returns the instructions between a call that publishes a loop's hazards successfully and the calls that clear them.
// They need no checks, and must not poll.
llvm::DenseSet<const llvm::Instruction*> covered_by_hazards(llvm::Function& function);

}  // namespace multigrain::checks
