// Where a function's count is added to, and where it polls.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/PostDominators.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Dominators.h>

#include <optional>

#include "cost.h"
#include "function.h"

namespace multigrain::count {

// What is added `times` times before a loop.
struct Product {
  llvm::BasicBlock* before;  // at its end
  const llvm::SCEV* times;
  Cost cost;
};

class Plan {
 public:
  Plan(llvm::Function& function, llvm::FunctionAnalysisManager& analyses, const Options& options);

  // What is added at the begin of each block.
  llvm::DenseMap<llvm::BasicBlock*, Cost> costs;
  llvm::SmallVector<Product, 0> products;
  // These poll at their begin.
  llvm::SmallVector<llvm::BasicBlock*> polling_blocks;
  // Polls stand in front of these.
  llvm::SmallVector<llvm::Instruction*> polling_ends;
  // The function polls when it returns.
  bool polls_at_return = false;

 private:
  struct Exit {
    llvm::BasicBlock* from;
    llvm::BasicBlock* to;
  };

  void add_polls();
  std::optional<uint64_t> look_at(llvm::Loop& loop);
  [[nodiscard]] std::optional<Exit> only_exit(const llvm::Loop& loop) const;
  // Has the loop counted before it begins, if it can be. Returns whether blocks that are executed in each iteration need no
  // addition then.
  bool count_before(llvm::Loop& loop, const Exit& exit);
  void place_poll(const llvm::Loop& loop, bool swaps);
  void poll_behind_hoisted();
  void poll_in_other_cycles();
  void merge();
  [[nodiscard]] llvm::BasicBlock* block_always_before(llvm::BasicBlock& block) const;
  [[nodiscard]] bool has_call_between(llvm::BasicBlock& first, llvm::BasicBlock& last) const;

  llvm::Function& function_;
  const Options& options_;
  llvm::LoopInfo& loops_;
  llvm::DominatorTree& dominators_;
  llvm::PostDominatorTree post_dominators_;
  llvm::ScalarEvolution& evolution_;
  llvm::TargetTransformInfo& target_;
  const llvm::DenseSet<const llvm::Instruction*> covered_;
  llvm::DenseSet<const llvm::BasicBlock*> calling_;  // blocks with calls before which the count has to be up to date
  llvm::DenseSet<const llvm::Loop*> folded_;         // loops in which nothing is counted
  llvm::DenseSet<const llvm::Loop*> polled_;         // loops that poll in each iteration
  llvm::SmallVector<std::pair<llvm::Loop*, llvm::BasicBlock*>> long_hoisted_;  // with the block behind the loop
};

}  // namespace multigrain::count
