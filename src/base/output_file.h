// The file that will have the results of some work: whether it can be written is found out before the work is done, and it is
// written as a whole behind it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace multigrain {

// Checks whether the file can be written, or made. Leaves the file as it was, so its contents are lost only when
// something is written in their place. Returns the file's absolute name, which stays right when the process goes to
// another folder.
Result<std::string> check_output_file(const std::string& name);

// Writes the file. It has all of the text when it appears under its name, and keeps what it had until then; but a device or a pipe is
// written directly. Errors: the folder is missing or may not be changed, the disk is full.
Status write_output_file(const std::string& name, std::string_view text);

}  // namespace multigrain
