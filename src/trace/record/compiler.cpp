#include "trace/record/compiler.h"

#include "base/installation.h"

namespace multigrain::trace {

Result<std::vector<std::string>> compiler_command(Language language, const std::vector<std::string>& arguments) {
  const auto libraries = find_beside_executable({"../" MULTIGRAIN_LIBDIR "/multigrain", "../lib", "../../lib"},
                                                {"libmultigrain-record-pass.so", "libmultigrain-record.so"});
  if (!libraries) return tl::unexpected(libraries.error());
  std::vector<std::string> command = {language == Language::kC ? MULTIGRAIN_CLANG : MULTIGRAIN_CLANGXX,
                                      "-fpass-plugin=" + (*libraries / "libmultigrain-record-pass.so").string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  // The runtime stands before the C and C++ libraries, whose functions it replaces. It is unused where nothing is
  // linked.
  for (const std::string& argument :
       {std::string("--start-no-unused-arguments"), "-L" + libraries->string(), std::string("-lmultigrain-record"),
        "-Wl,-rpath," + libraries->string(), std::string("--end-no-unused-arguments")}) {
    command.push_back(argument);
  }
  return command;
}

}  // namespace multigrain::trace
