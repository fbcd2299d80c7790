// One window that loops hold over many stores (docs/fine-grain.md, "A held window").
//
// A window's price is its locked instruction. In a loop whose addresses are not known before, one window is opened over
// everything at the first store, and stays open: each store then only looks at its own line's word, which is right
// because the window was published before. It is closed where code may wait or take long: before calls, before loops
// without use for it, behind the loop, and after some thousand instructions. Loops that have windows of their own (loops.h)
// do without them where it is open: their lines are looked at all the same.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>

namespace multigrain::checks {

class HeldWindow {
 public:
  explicit HeldWindow(llvm::Function& function) : function_(function) {}

  // Finds the loops that hold a window: those with a store among `accesses`. Before blocks are split for checks.
  // What is `covered` has windows of its own already.
  void find(const llvm::SetVector<llvm::Instruction*>& accesses,
            const llvm::DenseSet<const llvm::Instruction*>& covered);
  // Whether the block, one of those there were when find() was called, is in such a loop.
  [[nodiscard]] bool holds(const llvm::BasicBlock* block) const { return blocks_.contains(block); }

  // The losses since when pages are remembered, if the window is open (fine_grain.h).
  llvm::Value* since(llvm::IRBuilder<>& builder);
  void open(llvm::IRBuilder<>& builder);
  // With it open: looks at the pages of [address, address + size).
  void look(llvm::IRBuilder<>& builder, llvm::Value* address, uint64_t size);
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
  void forget(llvm::IRBuilder<>& builder);
  void close(llvm::IRBuilder<>& builder);

  llvm::Function& function_;
  llvm::DenseSet<const llvm::BasicBlock*> blocks_;
  llvm::SetVector<llvm::Instruction*> close_before_;  // calls, and the ends of blocks before loops without use for it
  llvm::SetVector<llvm::CallInst*> batch_opens_, batch_closes_;  // of loops' windows
  struct Iteration {
    uint64_t length;  // instructions
    bool polls;       // when the count runs out
  };
  llvm::MapVector<llvm::Instruction*, Iteration> back_edges_;
  llvm::SmallVector<llvm::CallInst*> polls_;  // that the count stands for
  llvm::SetVector<llvm::BasicBlock*> exits_;
  llvm::Value* shift_ = nullptr;
  llvm::Value* table_ = nullptr;
  llvm::AllocaInst* since_ = nullptr;
  llvm::AllocaInst* left_ = nullptr;  // instructions until it is closed
};

}  // namespace multigrain::checks
