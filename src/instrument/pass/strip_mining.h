// This strip-mines a loop whose addresses are known before it begins: the loop runs in pieces of bounded length,
// because hazards must not stay published for long. Each piece either publishes hazards and runs without checks, or
// runs with checks of its own.
#pragma once

#include "loop_plan.h"

namespace multigrain::checks {

// Replaces the loop by its strip-mined form. Returns false, and changes nothing, if the plan's expressions cannot be
// computed before the loop.
bool strip_mine(const LoopAnalyses& analyses, llvm::Loop& loop, const Plan& plan);

}  // namespace multigrain::checks
