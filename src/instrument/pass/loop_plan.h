// What a loop, or a nest of loops, will access, as far as that can be computed before it runs.
#pragma once

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/IR/Dominators.h>

#include <optional>

#include "memory/checked_memory.h"

namespace multigrain::checks {

// What is known of a function and its loops.
struct LoopAnalyses {
  llvm::Function& function;
  llvm::LoopInfo& loops;
  llvm::DominatorTree& dominators;
  llvm::ScalarEvolution& evolution;
  const llvm::DataLayout& layout;
  llvm::IntegerType* i64;
};

// A piece of fewer iterations is done sooner with checks of its own.
inline constexpr uint64_t kWorthLoads = 12;
inline constexpr uint64_t kWorthStores = 4;

// What one access, or several at constant distances, touch while the loop runs: candidates for the least and the
// greatest first byte, of which, with an unknown sign of a step, either may be it.
struct LoopRun {
  const llvm::SCEV* address;  // of the first access that was found, as an integer
  const llvm::Loop* loop;     // in which it is
  int64_t begin, end;         // around that
  bool stores;
  llvm::SmallVector<const llvm::SCEV*, 4> least, greatest;  // in the loop's iterations alone
  // Of one row, if it has rows: so far apart, and so many.
  const llvm::SCEV* stride = nullptr;
  const llvm::SCEV* rows = nullptr;  // null: one for each of the loop's own iterations
};

// A precondition, checked at run time before the loop, under which the computed bounds are valid: a comparison of two numbers
// that are known there.
struct Condition {
  llvm::CmpInst::Predicate predicate;
  const llvm::SCEV *left, *right;
};

struct Plan {
  llvm::SmallVector<LoopRun, MG_FINE_HAZARDS> runs;
  llvm::SmallVector<Condition, 4> conditions;
  // Iterations of innermost loops for one of the loop: products of these, added up.
  llvm::SmallVector<llvm::SmallVector<const llvm::SCEV*, 3>, 2> inner;
  bool stores = false;
};

// How often a loop goes back to its header, and what must hold for that.
struct Count {
  const llvm::SCEV* back_edges;
  llvm::SmallVector<Condition, 2> conditions;
};

// Of a rotated loop with one way out and a number of iterations that is known before; null otherwise.
std::optional<Count> count(const LoopAnalyses& analyses, const llvm::Loop& loop);

// The recurrence that the expression is in the loop; null if it is the same in all iterations.
const llvm::SCEVAddRecExpr* as_recurrence(const LoopAnalyses& analyses, const llvm::SCEV* expression,
                                          const llvm::Loop& loop);

// The plan for a loop; none if hazards cannot be published around it, which -fmultigrain-explain says why.
std::optional<Plan> plan_for(const LoopAnalyses& analyses, llvm::Loop& loop);

}  // namespace multigrain::checks
