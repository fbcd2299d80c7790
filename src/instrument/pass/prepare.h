// Brings the accesses of a function into the form that the checks know.
#pragma once

#include "checked_function.h"

namespace multigrain::checks {

// Makes of everything that may reach shared memory loads, stores and atomics that the checks know, or calls of the runtime,
// and collects those that need checks in function.accesses. Library functions are replaced by their checked versions.
void prepare_accesses(CheckedFunction& function);

}  // namespace multigrain::checks
