// Where the Python package multigrain is, and the interpreter that runs it: for the commands that are written in it.
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// The interpreter: MULTIGRAIN_PYTHON; in the build tree the one that cmake/setup.sh made; or whatever python3 is.
std::string python_interpreter();

// The folder to import from: beside the executable, as installed or as built. Errors: an incomplete installation.
Result<std::string> python_package_directory();

// The folder of the running executable.
Result<std::string> own_directory();

}  // namespace multigrain
