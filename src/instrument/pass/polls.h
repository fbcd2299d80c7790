// Polls: a processor that computes looks from time to time whether messages wait ([Shasta], section 2.1).
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

inline constexpr const char* kPollMiss = "__multigrain_poll_miss";

// Puts a poll in front of an instruction.
void insert_poll(llvm::Instruction& before);

// The polls of one function: one an iteration of its loops, but for those
//   that end soon for certain,
//   that run with hazards published, in which nobody may call anything (the loop of pieces around them polls),
//   that the compiler has made vectors of (the loop around them polls), and
//   in which an inner loop's poll is passed for certain;
// and one at the beginning of a function that calls itself. Loops that use the loop hazard (loop_hazard.h) count instructions,
// and poll when the count runs out instead.
class Polls {
 public:
  // Chooses the places. Before anything else is put into the function, when loops are as the optimiser knows them.
  Polls(llvm::Function& function, llvm::FunctionAnalysisManager& analyses, bool calls_itself);
  // Puts the polls in, before the checks, which may keep a hazard published from one iteration to the next, and clear it
  // before what is called. Whether there are any.
  bool insert();

 private:
  llvm::Function& function_;
  bool at_entry_ = false;
  llvm::SmallVector<llvm::BasicBlock*> begins_;  // headers of loops
  llvm::SmallVector<llvm::Instruction*> ends_;   // branches back
};

}  // namespace multigrain::checks
