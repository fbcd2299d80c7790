#include "base/installation.h"

#include <algorithm>
#include <system_error>

namespace multigrain {

Result<std::filesystem::path> find_beside_executable(std::initializer_list<const char*> places,
                                                     std::initializer_list<const char*> files) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail("cannot find the executable's own folder: {}", error.message());
  const auto at = [&](const char* place) { return (executable.parent_path() / place).lexically_normal(); };
  for (const char* place : places) {
    if (std::ranges::all_of(files, [&](const char* file) { return fs::exists(at(place) / file, error); }))
      return at(place);
  }
  std::string names;
  for (const char* file : files) names += (names.empty() ? "" : " and ") + std::string(file);
  return fail("cannot find {} in '{}': the installation is incomplete", names, at(*places.begin()).string());
}

}  // namespace multigrain
