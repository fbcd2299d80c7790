#include "python_package.h"

#include <cstdlib>
#include <filesystem>

namespace multigrain {

namespace fs = std::filesystem;

std::string python_interpreter() {
  if (const char* chosen = std::getenv("MULTIGRAIN_PYTHON"); chosen != nullptr && *chosen != '\0') return chosen;
  // The build's own is for what runs in the build tree: an installation must not depend on it.
  std::error_code ignored;
  const auto own = own_directory();
  if (own && fs::equivalent(*own, MULTIGRAIN_BUILD_BIN, ignored) && fs::exists(MULTIGRAIN_BUILD_PYTHON, ignored))
    return MULTIGRAIN_BUILD_PYTHON;
  return "python3";
}

Result<std::string> own_directory() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail("cannot find the executable's own folder: {}", error.message());
  return executable.parent_path().string();
}

Result<std::string> python_package_directory() {
  const auto own = own_directory();
  if (!own) return own;
  std::error_code error;
  for (const char* place : {"../" MULTIGRAIN_LIBRARY_DIRECTORY, "../lib"}) {
    const fs::path directory = (fs::path(*own) / place / "multigrain/python").lexically_normal();
    if (fs::exists(directory / "multigrain/study", error)) return directory.string();
  }
  return fail("cannot find the Python package multigrain in '{}': the installation is incomplete",
              (fs::path(*own) / "../" MULTIGRAIN_LIBRARY_DIRECTORY "/multigrain/python").lexically_normal().string());
}

}  // namespace multigrain
