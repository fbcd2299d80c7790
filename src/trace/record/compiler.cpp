#include "trace/record/compiler.h"

#include <filesystem>
#include <system_error>

namespace multigrain::trace {

Result<std::vector<std::string>> compiler_command(Language language, const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail("cannot find the executable's own folder: {}", error.message());
  fs::path libraries;
  for (const char* place : {"../" MULTIGRAIN_LIBDIR "/multigrain", "../lib", "../../lib"}) {
    const fs::path candidate = (executable.parent_path() / place).lexically_normal();
    if (fs::exists(candidate / "libmultigrain-record-pass.so") && fs::exists(candidate / "libmultigrain-record.so")) {
      libraries = candidate;
      break;
    }
  }
  if (libraries.empty()) {
    return fail(
        "cannot find libmultigrain-record-pass.so and libmultigrain-record.so in '{}': the installation is "
        "incomplete",
        (executable.parent_path() / "../" MULTIGRAIN_LIBDIR "/multigrain").lexically_normal().string());
  }
  std::vector<std::string> command = {language == Language::kC ? MULTIGRAIN_CLANG : MULTIGRAIN_CLANGXX,
                                      "-fpass-plugin=" + (libraries / "libmultigrain-record-pass.so").string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  // Before the C and C++ libraries, whose functions it stands in for; unused where nothing is linked.
  for (const std::string& argument :
       {std::string("--start-no-unused-arguments"), "-L" + libraries.string(), std::string("-lmultigrain-record"),
        "-Wl,-rpath," + libraries.string(), std::string("--end-no-unused-arguments")}) {
    command.push_back(argument);
  }
  return command;
}

}  // namespace multigrain::trace
