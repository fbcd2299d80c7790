// Looks at what the program was linked from.
#pragma once

namespace multigrain::openmp {

// Returns whether the executable or a shared library that the program has brought refers to the function: its dynamic symbol
// table then has the name without a definition.
bool program_refers_to(const char* function);

}  // namespace multigrain::openmp
