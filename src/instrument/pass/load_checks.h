// This part of the pass checks loads: the code compares each loaded value with the flag value, and calls the runtime if
// they may be equal (docs/internals/fine-grain.md).
#pragma once

#include <vector>

#include "checked_function.h"
#include "loop_hazard.h"
#include "store_batches.h"

namespace multigrain::checks {

// Loads whose values one branch checks, in the order of the program.
using LoadGroup = llvm::SmallVector<llvm::LoadInst*, 8>;

// Appends the groups of a block's loads to `groups`. Loads of one group are moved together.
void form_load_groups(CheckedFunction& function, llvm::BasicBlock& block, std::vector<LoadGroup>& groups);

// Loads the value by way of the runtime. Returns it.
llvm::Value* load_by_runtime(const CheckedFunction& function, llvm::IRBuilder<>& builder, const llvm::LoadInst& load);

// Inserts the check behind the group's last load. If `again` is not null, that run is held again where the group misses
// (held_runs.h).
void check_loads(CheckedFunction& function, LoopHazard& loop_hazard, llvm::ArrayRef<llvm::LoadInst*> group,
                 const Run* again);

// Sees to it that the program uses the value that was compared: the code generator may load simple memory a second time instead of keeping
// what it has loaded, and another node may have taken the line away in between. To be called when nothing asks any more
// which loads were volatile in the program.
void keep_compared_loads_single(CheckedFunction& function);

}  // namespace multigrain::checks
