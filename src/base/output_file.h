// A file that will be written when the work is done: that it can be written is found out before.
#pragma once

#include <string>

#include "base/error.h"

namespace multigrain {

// Whether the file can be written, or made. Leaves it as it was: what is in it is lost only when something takes its
// place. Returns its absolute name, which stays right when the process goes to another folder.
Result<std::string> check_output_file(const std::string& name);

}  // namespace multigrain
