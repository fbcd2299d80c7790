// -fmultigrain-checks=verify: before each access that relies on a published hazard, the runtime tests whether there is one.
#pragma once

#include "store_batches.h"

namespace multigrain::checks {

// After the checks of the batches were put in.
void verify_accesses(CheckedFunction& function, llvm::ArrayRef<Batch> batches);

}  // namespace multigrain::checks
