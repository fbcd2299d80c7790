// This is the state that the parts of the pass (checks.h) share while they put checks into one function.
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/ValueHandle.h>

#include <vector>

namespace multigrain::checks {

struct CheckedFunction {
  CheckedFunction(llvm::Function& function, llvm::AAResults& aliases);

  [[nodiscard]] llvm::iterator_range<llvm::inst_iterator> all_instructions() const { return instructions(function); }
  // Makes a variable on the stack.
  [[nodiscard]] llvm::AllocaInst* local(llvm::Type* type) const;
  void replace(llvm::Instruction& old, llvm::Value* with);
  // Tells whether the instruction is a load that gets a check of its value. An atomic load that is too wide for that is
  // made under a hazard, as a store is.
  [[nodiscard]] bool is_checked_load(const llvm::Instruction& instruction) const;
  // Finds which accesses are seldom executed. It runs before blocks are split for checks.
  void find_seldom_accesses();
  // What follows if a check fails stands in line beside an access that is seldom executed: there the shorter code is worth a branch
  // that is mostly taken.
  [[nodiscard]] bool is_seldom(const llvm::Instruction& access) const { return seldom_accesses_.contains(&access); }

  llvm::Function& function;
  llvm::Module& module;
  llvm::LLVMContext& context;
  const llvm::DataLayout& layout;
  llvm::AAResults& aliases;
  llvm::IntegerType* const i32;
  llvm::IntegerType* const i64;
  llvm::PointerType* const ptr;
  // The weights of branches that are rarely taken, and of those that are mostly taken.
  llvm::MDNode* const rarely;
  llvm::MDNode* const mostly;
  // The weights of branches both ways of which are to stand in line.
  llvm::MDNode* const evenly;
  // The instructions that a loop's hazards cover (covered.h).
  llvm::DenseSet<const llvm::Instruction*> covered;
  // The loads, stores and atomics that get checks.
  llvm::SetVector<llvm::Instruction*> accesses;
  // The loads whose values have been compared with the flag value. Some may have been erased since.
  std::vector<llvm::WeakVH> compared_loads;
  bool changed = false;

 private:
  llvm::DenseSet<const llvm::Instruction*> seldom_accesses_;
};

// Tells whether no access may move across the instruction, in either direction.
bool is_barrier(const llvm::Instruction& instruction);

}  // namespace multigrain::checks
