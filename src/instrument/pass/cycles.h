// Cycles of a program that the compiler's analysis of loops does not show. The passes for checks and for counting
// (src/count/pass) poll in both.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/CallGraph.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Function.h>

namespace multigrain::checks {

// Returns the functions that call themselves, directly or by way of other functions.
llvm::DenseSet<llvm::Function*> find_recursive(llvm::CallGraph& calls);

// Returns the branches that close the function's other cycles than `loops`: a cycle is no loop to the analysis if there are
// jumps into its middle.
llvm::SmallVector<llvm::Instruction*> ends_of_other_cycles(llvm::Function& function, const llvm::LoopInfo& loops);

}  // namespace multigrain::checks
