// With -fmultigrain-checks=verify, the runtime tests before each access that relies on a published hazard whether there
// is one. This finds faults of the checks themselves.
#pragma once

#include "store_batches.h"

namespace multigrain::checks {

// Inserts the calls. The checks of the batches must have been inserted before.
void verify_accesses(CheckedFunction& function, llvm::ArrayRef<Batch> batches);

}  // namespace multigrain::checks
