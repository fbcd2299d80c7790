// Programs of the Python interpreter, which is not linked with libmultigrain: mgrun preloads the library into it
// (docs/internals/python.md).
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// Returns whether the file is a Python interpreter or a script for one: its name begins with "python", or so does the name of
// the interpreter in its #! line (behind /usr/bin/env as well).
bool starts_python(const std::string& path);

// Returns the path of the library that is beside mgrun. Errors: it is not there.
Result<std::string> library_to_preload();

}  // namespace multigrain
