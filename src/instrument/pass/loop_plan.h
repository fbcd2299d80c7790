// The plan of a loop, or of a nest of loops, says which memory it will access, in expressions that can be computed
// before it runs. Hazards around the loop (loops.h) are published over that memory.
#pragma once

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/IR/Dominators.h>

#include <optional>

#include "memory/checked_memory.h"

namespace multigrain::checks {

// LLVM's analyses of a function and its loops.
struct LoopAnalyses {
  llvm::Function& function;
  llvm::LoopInfo& loops;
  llvm::DominatorTree& dominators;
  llvm::ScalarEvolution& evolution;
  const llvm::DataLayout& layout;
  llvm::IntegerType* i64;
};

// A piece of fewer iterations is faster with checks of its own.
inline constexpr uint64_t kWorthLoads = 12;
inline constexpr uint64_t kWorthStores = 4;

// The memory that one access, or several at constant distances, touch while the loop runs. `least` and `greatest` are
// candidates for the least and the greatest first byte. There are several where the sign of a step is not known.
struct LoopRun {
  const llvm::SCEV* address;  // the first access' address, as an integer
  const llvm::Loop* loop;     // the innermost loop around the accesses
  int64_t begin, end;         // from `address`
  bool stores;
  llvm::SmallVector<const llvm::SCEV*, 4> least, greatest;  // in the loop's iterations alone
  // If the run has rows, the members above describe one row, `stride` is the distance between two rows, and
  // `rows` their number.
  const llvm::SCEV* stride = nullptr;
  const llvm::SCEV* rows = nullptr;  // null: a row for each of the loop's own iterations
};

// A precondition of the computed bounds: a comparison of two numbers that are known before the loop. The code tests it
// there at run time.
struct Condition {
  llvm::CmpInst::Predicate predicate;
  const llvm::SCEV *left, *right;
};

struct Plan {
  llvm::SmallVector<LoopRun, MG_FINE_HAZARDS> runs;
  llvm::SmallVector<Condition, 4> conditions;
  // The number of iterations of innermost loops in one iteration of the loop is the sum of these products.
  llvm::SmallVector<llvm::SmallVector<const llvm::SCEV*, 3>, 2> inner;
  bool stores = false;
};

// How often a loop goes back to its header, and the conditions under which that number is right.
struct Count {
  const llvm::SCEV* back_edges;
  llvm::SmallVector<Condition, 2> conditions;
};

// Counts a rotated loop with one exit and a number of iterations that is known before it begins. Returns
// nothing for other loops.
std::optional<Count> count(const LoopAnalyses& analyses, const llvm::Loop& loop);

// Returns the recurrence that the expression is in the loop, or null if its value is the same in all iterations.
const llvm::SCEVAddRecExpr* as_recurrence(const LoopAnalyses& analyses, const llvm::SCEV* expression,
                                          const llvm::Loop& loop);

// Makes the plan for a loop. Returns nothing if hazards cannot be published around the loop; -fmultigrain-explain
// prints the reason.
std::optional<Plan> plan_for(const LoopAnalyses& analyses, llvm::Loop& loop);

}  // namespace multigrain::checks
