// Checks that need not be made again (an analysis of available checks, over the function's blocks).
//
// Invariant: behind a check under the loop hazard the thread may store to the lines of the run that was checked, until the
// hazard is cleared. Such a run is held. An access to a held run needs no check. A run is held at a place if it was checked
// on every way that leads there, and on none of them has the hazard been cleared since, or another run been checked: the
// runtime clears the hazard where that check misses. Where a load misses, which also clears the hazard, the code holds the run again
// if the program uses it later.
//
// Where an access certainly follows a check, and lies near, the check is of its memory as well, so that it is held.
#pragma once

#include <llvm/ADT/DenseMap.h>

#include <optional>
#include <vector>

#include "checked_function.h"
#include "load_checks.h"
#include "loop_hazard.h"
#include "store_batches.h"

namespace multigrain::checks {

// The runs that are to be held again where a group of loads misses, by the last load of the group.
using HeldAgain = llvm::DenseMap<const llvm::LoadInst*, Run>;

// Finds the batches that need no check, and takes loads that need none out of their groups. Says of other batches whether
// their runs have to be held behind them (Batch). Returns what has to be held again.
HeldAgain find_held_runs(CheckedFunction& function, const LoopHazard& loop_hazard, std::vector<LoadGroup>& groups,
                         std::vector<Batch>& batches);

}  // namespace multigrain::checks
