// This part of the pass brings the accesses of a function into a form that the checks can handle, before the
// checks are inserted.
#pragma once

#include "checked_function.h"

namespace multigrain::checks {

// Turns everything that may reach shared memory into loads, stores and atomics that the checks can handle, or into
// calls of the runtime, and collects the accesses that need checks in function.accesses. Library functions are replaced
// by their wrappers.
void prepare_accesses(CheckedFunction& function);

}  // namespace multigrain::checks
