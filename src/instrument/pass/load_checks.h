// Checks of loads: the value that was loaded is compared with the flag value (docs/internals/fine-grain.md).
#pragma once

#include <vector>

#include "checked_function.h"

namespace multigrain::checks {

// Loads whose values are checked by one branch, in the order of the program.
using LoadGroup = llvm::SmallVector<llvm::LoadInst*, 8>;

// Appends the groups of a block's loads to `groups`. Loads of one group are moved together.
void form_load_groups(CheckedFunction& function, llvm::BasicBlock& block, std::vector<LoadGroup>& groups);

// Puts the check behind the group's last load.
void check_loads(CheckedFunction& function, llvm::ArrayRef<llvm::LoadInst*> group);

}  // namespace multigrain::checks
