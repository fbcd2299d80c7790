// The loop hazard: one hazard that covers the stores of many iterations (docs/internals/fine-grain.md, "The loop
// hazard").
//
// The price of a hazard is its locked instruction. In a loop whose addresses are not known before, one hazard is published
// over all lines at the first store, and stays published: each store then only checks its own line's word, which is right
// because the hazard was published before. It is cleared where code may wait or take long: before calls, before loops
// without use for it, behind the loop, and after some thousand instructions. Loops that have hazards of their own (loops.h)
// do without them while it is published: their lines are checked all the same.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>

namespace multigrain::checks {

class LoopHazard {
 public:
  explicit LoopHazard(llvm::Function& function) : function_(function) {}

  // Finds the loops that use the loop hazard: those with a store among `accesses`. Before blocks are split for checks.
  // What is `covered` has hazards of its own already.
  void find(const llvm::SetVector<llvm::Instruction*>& accesses,
            const llvm::DenseSet<const llvm::Instruction*>& covered);
  // Whether the block, one of those there were when find() was called, is in such a loop.
  [[nodiscard]] bool covers(const llvm::BasicBlock* block) const { return blocks_.contains(block); }

  // The rights epoch in which the hazard was published, or that none is (checked_memory.h: MG_FINE_NO_LOOP_HAZARD).
  llvm::Value* epoch(llvm::IRBuilder<>& builder);
  void publish(llvm::IRBuilder<>& builder);
  // With the hazard published: enters the pages of [address, address + size) into the rights cache.
  void cache_rights(llvm::IRBuilder<>& builder, llvm::Value* address, uint64_t size);
  // The line shift, and where the word of a line would be that began at address 0: computed once.
  [[nodiscard]] llvm::Value* shift() const { return shift_; }
  [[nodiscard]] llvm::Value* table() const { return table_; }

  // When all checks are there: closes it where it has to be.
  void finish();

 private:
  void find(const llvm::Loop& loop, const llvm::DenseSet<const llvm::BasicBlock*>& uses,
            const llvm::DenseSet<const llvm::Instruction*>& covered);
  // `polls_before`: how many polls were found before this loop, and those inside, were looked at.
  void count_iterations(const llvm::Loop& loop, size_t polls_before);
  void remove(llvm::CallInst& poll);
  void note_cleared(llvm::IRBuilder<>& builder);
  void clear(llvm::IRBuilder<>& builder);

  llvm::Function& function_;
  llvm::DenseSet<const llvm::BasicBlock*> blocks_;
  llvm::SetVector<llvm::Instruction*> clear_before_;  // calls, and the ends of blocks before loops without use for it
  llvm::SetVector<std::pair<llvm::Instruction*, llvm::BasicBlock*>>
      clear_on_edges_;                                          // branches to such loops or elsewhere
  llvm::SetVector<llvm::CallInst*> batch_begins_, batch_ends_;  // calls around loops with hazards of their own
  struct Iteration {
    uint64_t length;  // instructions
    bool polls;       // when the count runs out
  };
  llvm::MapVector<llvm::Instruction*, Iteration> back_edges_;
  llvm::SmallVector<llvm::CallInst*> polls_;  // that the count stands for
  llvm::SetVector<llvm::BasicBlock*> exits_;
  llvm::Value* shift_ = nullptr;
  llvm::Value* table_ = nullptr;
  llvm::AllocaInst* epoch_ = nullptr;
  llvm::AllocaInst* left_ = nullptr;  // instructions until it is closed
};

}  // namespace multigrain::checks
