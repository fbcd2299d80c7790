// A loop in two forms, of which every piece of its iterations chooses one: under hazards, or with checks of its own.
#pragma once

#include "loop_plan.h"

namespace multigrain::checks {

// Puts both forms in place of the loop; false, and nothing has changed, if what the plan names cannot be computed before it.
bool divide_into_pieces(const LoopAnalyses& analyses, llvm::Loop& loop, const Plan& plan);

}  // namespace multigrain::checks
