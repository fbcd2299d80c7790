// Functions of the system's libraries, by their names: for the passes for checks and for counting (src/count/pass).
#pragma once

#include <llvm/ADT/StringRef.h>

namespace multigrain::checks {

// Tells whether a library of the machine on which this was built exports the name.
bool is_exported(llvm::StringRef name);

// Tells whether the name is that of a mathematical function of the C library, or of its form for float or long double.
// Those that store results by pointers (frexp, modf, remquo, sincos) are not among them.
bool is_mathematical(llvm::StringRef name);

// Tells whether the name is that of a function of the C library that gives out random numbers from a state of the
// library's own, and does nothing else. Some take a lock, which no thread holds for longer than such a call lasts.
bool is_random(llvm::StringRef name);

}  // namespace multigrain::checks
