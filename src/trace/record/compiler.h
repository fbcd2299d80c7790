// The compiler for programs that are to be recorded is clang with the recorder's pass and runtime.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain::trace {

enum class Language : uint8_t { kC, kCxx };

// Returns the command that compiles (and links, if `arguments` say so) like the compiler's own with these arguments.
// Finds the pass and the runtime beside the running executable, in ../lib or ../lib/multigrain.
Result<std::vector<std::string>> compiler_command(Language language, const std::vector<std::string>& arguments);

}  // namespace multigrain::trace
