// The references that the pass records together: those of a basic block between two places where the program may record something else,
// or those of all iterations of a loop.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>

#include <vector>

namespace multigrain::trace::record {

// A load or store.
struct Access {
  llvm::Instruction* instruction = nullptr;
  unsigned base = 0;   // the base that its address is at a constant distance from
  int64_t offset = 0;  // that distance
};

// Accesses of which the program makes all, in this order, whenever it makes one; and nothing that is recorded otherwise comes between
// them. A loop's are made in each iteration.
struct Group {
  std::vector<Access> accesses;
  llvm::SmallVector<llvm::Value*> bases;  // addresses
  llvm::SmallVector<int64_t> strides;     // of a loop: by so much each base grows from an iteration to the next
  uint64_t private_references = 0;        // before the first access; in a loop, of each iteration
  llvm::BasicBlock* loop = nullptr;       // which is one block; nullptr: it is no loop
};

// What is to be done about a function.
struct Plan {
  std::vector<Group> groups;
  // These have accesses to memory of the thread's own alone, or more than a group of the block counts: so many at the block's head.
  llvm::DenseMap<llvm::BasicBlock*, uint64_t> private_references;
};

enum class AccessKind {
  kNone,     // it refers to no memory
  kPrivate,  // it refers to the thread's own memory
  kShared,   // a load or store that can be in a group
  kOther,    // it is recorded otherwise, or calls what may record something
};

// Finds the groups of a function that has not been changed yet. `kind_of` classifies instructions, and says by how many private
// references one of kPrivate counts.
Plan plan_of(llvm::Function& function, llvm::LoopInfo& loops, llvm::ScalarEvolution& evolution,
             llvm::function_ref<AccessKind(llvm::Instruction&, uint64_t& privates)> kind_of);

}  // namespace multigrain::trace::record
