// A function that gets checks, as the parts of the pass that put them in see it (checks.h).
#pragma once

#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

namespace multigrain::checks {

struct CheckedFunction {
  CheckedFunction(llvm::Function& function, llvm::AAResults& aliases);

  [[nodiscard]] llvm::iterator_range<llvm::inst_iterator> all_instructions() const { return instructions(function); }
  // A variable on the stack.
  [[nodiscard]] llvm::AllocaInst* local(llvm::Type* type) const;
  void replace(llvm::Instruction& old, llvm::Value* with);
  // Whether the load gets a check of its value. An atomic load too wide for that goes through a hazard, as a store does.
  [[nodiscard]] bool is_checked_load(const llvm::Instruction& instruction) const;

  llvm::Function& function;
  llvm::Module& module;
  llvm::LLVMContext& context;
  const llvm::DataLayout& layout;
  llvm::AAResults& aliases;
  llvm::IntegerType* const i32;
  llvm::IntegerType* const i64;
  llvm::PointerType* const ptr;
  // Weights of branches that are rarely, and that are mostly taken.
  llvm::MDNode* const rarely;
  llvm::MDNode* const mostly;
  // The instructions that a loop's hazards cover (covered.h).
  llvm::DenseSet<const llvm::Instruction*> covered;
  // The loads, stores and atomics that get checks.
  llvm::SetVector<llvm::Instruction*> accesses;
  bool changed = false;
};

// Whether no access moves from before the instruction to behind it, or the other way.
bool is_barrier(const llvm::Instruction& instruction);

}  // namespace multigrain::checks
