// A hazard costs a locked instruction, so stores to one object that stand close together share one. This part of the pass
// forms such batches.
#pragma once

#include <vector>

#include "checked_function.h"
#include "loop_hazard.h"
#include "memory/checked_memory.h"

namespace multigrain::checks {

inline constexpr uint64_t kSmallestLine = uint64_t{1} << MG_FINE_MIN_LINE_SHIFT;
// The greatest length of a run of stores, in bytes. It has parts of three lines at the most, whatever the lines' size.
inline constexpr int64_t kLargestRun = 64;

// A run of bytes that a batch's accesses store to. One hazard covers it.
struct Run {
  llvm::Value* base;
  llvm::Instruction* access;  // one of the run's accesses
  int64_t access_begin;       // where that access begins, from the base
  int64_t begin, end;         // from the base
  bool within_line;           // the run cannot cross lines
};

// A batch is a sequence of stores to one run, between which there is no call and no access that may miss, or one atomic. It
// may begin with loads of the same memory (updates.h). Hazards over several runs would save little of the time of a second
// locked instruction, as each run's lines have to be looked at all the same, and cost much code.
struct Batch {
  llvm::SmallVector<llvm::Instruction*, 8> accesses;
  Run run{};
  bool under_loop_hazard = false;
  bool is_held = false;  // it needs no check (held_runs.h)
  bool holds = false;    // what its check finds is relied on behind it
};

// The bytes that one access stores to or loads from.
struct Extent {
  llvm::Value* base;
  llvm::Instruction* access;
  int64_t begin, end;
  bool within_line;
};
Extent extent_of(const CheckedFunction& function, llvm::Instruction& access);

// Appends the batches of a block to `batches`. The loop hazard's loops must have been found before.
void form_batches(const CheckedFunction& function, const LoopHazard& loop_hazard, llvm::BasicBlock& block,
                  std::vector<Batch>& batches);

// Computes the address of the run's first byte, and how many bytes the run has.
llvm::Value* address_of(const CheckedFunction& function, llvm::IRBuilder<>& builder, const Run& run);
inline uint64_t size_of(const Run& run) {
  return static_cast<uint64_t>(run.end - run.begin);
}

// Computes a run's base anew after other checks were inserted. A base that was a load when the batch was formed may
// have been replaced by the result of the load's check. An address at an offset from a base may have become a base
// itself, where the body of another batch and its copy meet.
void recompute_run(const CheckedFunction& function, Run& run);

}  // namespace multigrain::checks
