// Has a loop tell the detector of compiled calls (races/compiled) of its accesses before it runs, by one call for a range, where all
// of them are known then. The loop itself stays as it is, and can be vectorised.
#pragma once

#include <llvm/IR/Instruction.h>
#include <llvm/IR/PassManager.h>

namespace multigrain::races {

// Runs on loops that the vectoriser is about to look at. Accesses that have been told of get a mark, which vectorised ones keep.
bool tell_of_ranges(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);

// Returns whether the access has been told of before its loop.
bool is_told(const llvm::Instruction& access);

}  // namespace multigrain::races
