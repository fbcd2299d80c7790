// An update loads and stores the same memory, as `x->count += n` does. Where a batch's stores go to what the loads before
// it have loaded, the loads become parts of the batch: its lines are made exclusive before them. The loads then need no
// checks, and where a line is elsewhere there is one miss instead of two, the second of which would only have asked for
// the right to store.
#pragma once

#include <vector>

#include "checked_function.h"
#include "load_checks.h"
#include "store_batches.h"

namespace multigrain::checks {

// Moves loads from a block's groups to its batches. Both must have been formed.
void form_updates(const CheckedFunction& function, std::vector<LoadGroup>& groups, std::vector<Batch>& batches);

}  // namespace multigrain::checks
