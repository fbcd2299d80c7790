// This finds the files that an executable of Multigrain needs: they are beside it, in the build tree or in an installed
// tree that may have been moved.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace multigrain {

// Returns the first of `places`, relative to the running executable's folder, that has all `files`. An error names the
// files and the first place. Not async-signal-safe.
Result<std::filesystem::path> find_beside_executable(std::initializer_list<const char*> places,
                                                     std::initializer_list<const char*> files);

}  // namespace multigrain
