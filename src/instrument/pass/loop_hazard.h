// The loop hazard is one hazard that covers the stores of many iterations, or those of a whole function
// (docs/internals/fine-grain.md, "The loop hazard").
//
// The price of a hazard is its locked instruction. In a loop whose addresses are not known before, the first store
// publishes a hazard over all lines, which stays published. Each further store only checks its own line's word,
// which is enough because the hazard was published before. The hazard is cleared where code may wait or take long:
// before calls, before loops that do not use it, behind the loop or at the function's end, and after some thousand
// instructions. Loops that have hazards of their own (loops.h) do not publish them while the loop hazard is published.
// Their lines are checked all the same.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/ValueHandle.h>

namespace multigrain::checks {

class LoopHazard {
 public:
  explicit LoopHazard(llvm::Function& function) : function_(function) {}

  // Finds the loops that use the loop hazard: those with a store among `accesses`. It runs before blocks are split for
  // checks. The instructions in `covered` have hazards of their own already.
  void find(const llvm::SetVector<llvm::Instruction*>& accesses,
            const llvm::DenseSet<const llvm::Instruction*>& covered);
  // Tells whether the stores of the block use the hazard. The block must have existed when find() was called.
  [[nodiscard]] bool covers(const llvm::BasicBlock* block) const { return blocks_.contains(block); }
  [[nodiscard]] bool covers_any() const { return epoch_ != nullptr; }
  // Tells whether the hazard may be cleared at the instruction, which is no access, or on the way from one block into the
  // next one, if that is not around a loop.
  [[nodiscard]] bool may_clear_at(const llvm::Instruction& instruction) const;
  [[nodiscard]] bool may_clear_between(llvm::BasicBlock* from, llvm::BasicBlock* to) const;

  // Loads the rights epoch in which the hazard was published, or MG_FINE_NO_LOOP_HAZARD (checked_memory.h) if
  // it is not published.
  llvm::Value* epoch(llvm::IRBuilder<>& builder);
  // The branch, which tests a word of the rights cache, takes its second way if `epoch`, which epoch() has returned, says
  // that the hazard is not published.
  void depends_on(llvm::Value* epoch, llvm::LoadInst* word, llvm::BranchInst* branch) {
    tests_.push_back({epoch, word, branch});
  }
  // Calls the runtime, which publishes the hazard, unless it is published, and tests whether this node may store to all
  // lines of [address, address + size). Returns that condition. If it is false, no hazard is published.
  llvm::Value* check(llvm::IRBuilder<>& builder, llvm::Value* address, uint64_t size);
  // Calls the runtime, which publishes the hazard, unless it is published, and makes the store. The hazard may be
  // cleared then.
  void store(llvm::IRBuilder<>& builder, llvm::StoreInst& store);
  // Calls the runtime, which publishes the hazard, unless it is published, and brings all lines of [address, address +
  // size), so that this node may store to them until the hazard is cleared.
  void hold(llvm::IRBuilder<>& builder, llvm::Value* address, uint64_t size);
  // Does the same where no hazard is published, if the memory is shared.
  void hold_again(llvm::IRBuilder<>& builder, llvm::Value* address, uint64_t size);

  // Clears the hazard wherever it has to be cleared. It runs when all checks have been inserted.
  void finish();

 private:
  using Blocks = llvm::DenseSet<const llvm::BasicBlock*>;
  using Order = llvm::ReversePostOrderTraversal<llvm::Function*>;
  // What find() is told, and has found out, before it looks at loops. `uses` are the blocks with stores, or pieces.
  struct Found {
    const llvm::LoopInfo& loops;
    const llvm::SetVector<llvm::Instruction*>& accesses;
    const llvm::DenseSet<const llvm::Instruction*>& covered;
    const Order& order;
    Blocks stores, uses;
  };
  void find_in(const llvm::Loop& loop, const Found& found);
  void find(const llvm::Loop& loop, const Found& found, bool is_outermost);
  void leave_out(const llvm::Loop& loop, const llvm::DenseSet<const llvm::Instruction*>& covered);
  void cover(llvm::BasicBlock& block, const llvm::DenseSet<const llvm::Instruction*>& covered);
  // How often the hazard would be published in a part of the function, and how many stores would find it published.
  struct Publications {
    uint64_t made = 0, saved = 0;
  };
  [[nodiscard]] Publications publications(const Found& found, const llvm::Loop* part) const;
  [[nodiscard]] bool is_worth_it_outside_of_loops(const Found& found) const;
  [[nodiscard]] bool is_worth_it(const llvm::Loop& loop, const Found& found) const;
  // `polls_before` is how many polls had been found before this loop and the loops inside it were looked at.
  void count_iterations(const llvm::Loop& loop, size_t polls_before);
  void remove(llvm::CallInst& poll);
  llvm::Value* ask(llvm::IRBuilder<>& builder, llvm::StringRef entry, llvm::Value* address, uint64_t size);
  void note_cleared(llvm::IRBuilder<>& builder);
  void clear(llvm::IRBuilder<>& builder);

  llvm::Function& function_;
  Blocks blocks_;
  Blocks without_;  // the blocks of loops that do not use the hazard
  // Calls, and the ends of blocks before loops that do not use the hazard.
  llvm::SetVector<llvm::Instruction*> clear_before_;
  // Branches that lead either to such a loop or elsewhere, and the loop's header.
  llvm::SetVector<std::pair<llvm::Instruction*, llvm::BasicBlock*>> clear_on_edges_;
  llvm::SetVector<llvm::CallInst*> batch_begins_, batch_ends_;  // calls around loops with hazards of their own
  struct Iteration {
    uint64_t length;  // instructions
    bool polls;       // it polls when the count runs out
  };
  llvm::MapVector<llvm::Instruction*, Iteration> back_edges_;
  llvm::SmallVector<llvm::CallInst*> polls_;  // the polls that the count replaces
  llvm::SetVector<llvm::BasicBlock*> exits_;
  // The stores that clear the hazard, each with the epoch before it.
  llvm::SmallVector<std::pair<llvm::WeakTrackingVH, llvm::StoreInst*>> clears_;
  struct Test {
    llvm::WeakTrackingVH epoch;
    llvm::LoadInst* word;
    llvm::BranchInst* branch;
  };
  llvm::SmallVector<Test> tests_;
  bool whole_function_ = false;  // stores outside of loops use the hazard, too
  llvm::AllocaInst* epoch_ = nullptr;
  llvm::AllocaInst* left_ = nullptr;  // instructions until the hazard is cleared
};

}  // namespace multigrain::checks
