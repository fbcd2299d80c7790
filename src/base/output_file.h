// This finds out, before the work is done, whether the file can be written that will have its results.
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// Checks whether the file can be written, or made. Leaves the file as it was, so its contents are lost only when
// something is written in their place. Returns the file's absolute name, which stays right when the process goes to
// another folder.
Result<std::string> check_output_file(const std::string& name);

}  // namespace multigrain
