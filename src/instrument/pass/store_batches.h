// Stores and atomics that share hazards.
#pragma once

#include <vector>

#include "checked_function.h"
#include "loop_hazard.h"
#include "memory/checked_memory.h"

namespace multigrain::checks {

inline constexpr uint64_t kSmallestLine = uint64_t{1} << MG_FINE_MIN_LINE_SHIFT;
// Bytes of a run of stores: three lines at the most, whatever their size.
inline constexpr int64_t kLargestRun = 64;

// Bytes that a batch's accesses store to, one hazard for all of them.
struct Run {
  llvm::Value* base;
  llvm::Instruction* access;  // one of the run's
  int64_t access_begin;       // where that begins
  int64_t begin, end;         // from the base
  bool within_line;           // it cannot cross lines
};

// Stores between which nothing is called or may miss, or one atomic.
struct Batch {
  llvm::SmallVector<llvm::Instruction*, 8> accesses;
  llvm::SmallVector<Run, 4> runs;
  bool under_loop_hazard = false;
};

// What one access stores to or loads from.
struct Extent {
  llvm::Value* base;
  llvm::Instruction* access;
  int64_t begin, end;
  bool within_line;
};
Extent extent_of(const CheckedFunction& function, llvm::Instruction& access);

// Appends the batches of a block to `batches`. After the loop hazard's loops were found.
void form_batches(const CheckedFunction& function, const LoopHazard& loop_hazard, llvm::BasicBlock& block,
                  std::vector<Batch>& batches);

// What was a load when the batch was formed may be the outcome of its check by now; and what was an address at an
// offset, where the bodies of other batches meet their copies, a base itself.
void recompute_run(const CheckedFunction& function, Run& run);

}  // namespace multigrain::checks
