// This pass inserts polls: a processor that computes tests from time to time whether messages wait ([Shasta], section
// 2.1), so that it spares its node a wake-up of the service thread.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/PassManager.h>

namespace multigrain::checks {

inline constexpr const char* kPollMiss = "__multigrain_poll_miss";

// The polls of one function. A function that calls itself polls at its beginning, and each loop polls once an
// iteration, except a loop
//   that certainly ends soon,
//   that runs with hazards published, so that it must not call anything (the loop around the pieces polls),
//   that the compiler has vectorised (the loop around it polls), or
//   in which every iteration certainly passes the poll of an inner loop.
// Loops that use the loop hazard (loop_hazard.h) count instructions, and poll when the count runs out instead.
class Polls {
 public:
  // Chooses the places. It runs before anything else is put into the function, while loops are as the
  // optimiser knows them.
  Polls(llvm::Function& function, llvm::FunctionAnalysisManager& analyses, bool calls_itself);
  // Inserts the polls. It runs before the checks are inserted, because these may keep a hazard published from one
  // iteration to the next, and clear it before calls. Returns whether there are any polls.
  bool insert();

 private:
  llvm::Function& function_;
  bool at_entry_ = false;
  llvm::SmallVector<llvm::BasicBlock*> begins_;  // headers of loops
  llvm::SmallVector<llvm::Instruction*> ends_;   // back edges' branches
};

}  // namespace multigrain::checks
