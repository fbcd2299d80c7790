#include "launch/interpreters.h"

#include <fstream>
#include <sstream>
#include <string_view>

#include "base/installation.h"
#include "multigrain/multigrain.h"

#define MULTIGRAIN_TEXT_OF(x) #x
#define MULTIGRAIN_TEXT(x) MULTIGRAIN_TEXT_OF(x)

namespace multigrain {
namespace {

constexpr const char* kLibrary =
    "libmultigrain.so." MULTIGRAIN_TEXT(MG_VERSION_MAJOR) "." MULTIGRAIN_TEXT(MG_VERSION_MINOR);

bool is_named_python(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("python");
}

}  // namespace

bool starts_python(const std::string& path) {
  if (is_named_python(path)) return true;
  // The kernel reads no more of a #! line than this.
  std::string line(256, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  if (!line.starts_with("#!")) return false;
  line = line.substr(2, line.find('\n') - 2);
  std::istringstream words(line);
  std::string interpreter;
  words >> interpreter;
  if (is_named_python(interpreter)) return true;
  if (interpreter.substr(interpreter.rfind('/') + 1) != "env") return false;
  // What env starts is the first word that is neither an option nor a variable.
  std::string word;
  while (words >> word)
    if (!word.starts_with('-') && word.find('=') == std::string::npos) return is_named_python(word);
  return false;
}

Result<std::string> library_to_preload() {
  const auto folder = find_beside_executable({"../" MULTIGRAIN_LIBRARY_DIRECTORY, "../lib"}, {kLibrary});
  if (!folder) return tl::unexpected<Error>(folder.error());
  return (*folder / kLibrary).string();
}

}  // namespace multigrain
