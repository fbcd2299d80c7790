// This part of the pass checks stores and atomics: the code publishes hazards over their lines, finds in the line table
// whether the node may store there, and clears the hazards behind them (docs/internals/fine-grain.md).
#pragma once

#include "checked_function.h"
#include "loop_hazard.h"
#include "store_batches.h"

namespace multigrain::checks {

void check_stores(CheckedFunction& function, LoopHazard& loop_hazard, Batch& batch);

}  // namespace multigrain::checks
