// Checks of stores and atomics: hazards are published over their lines, the line table says whether the node may store there,
// and the hazards are cleared behind them (docs/internals/fine-grain.md).
#pragma once

#include "checked_function.h"
#include "loop_hazard.h"
#include "store_batches.h"

namespace multigrain::checks {

void check_stores(CheckedFunction& function, LoopHazard& loop_hazard, Batch& batch);

}  // namespace multigrain::checks
