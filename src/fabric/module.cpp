#include "fabric/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

namespace multigrain {
namespace {

// Returns the folder of the file that holds this code: libmultigrain.so, or a tool or test that has it built in.
std::string folder_of_this_code() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&load_module), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  // The name of an executable may have no folder, if the executable was found in PATH.
  if (slash != std::string::npos) return path.substr(0, slash);
  char link[4096];
  const ssize_t length = readlink("/proc/self/exe", link, sizeof link);
  const std::string executable(link, length > 0 ? static_cast<size_t>(length) : 0);
  return executable.substr(0, executable.rfind('/'));
}

}  // namespace

Result<void*> load_module(std::string_view name, const char* symbol) {
  const std::string folder = folder_of_this_code();
  const std::string file = fmt::format("multigrain-{}.so", name);
  std::string path;
  for (const char* place : {"multigrain", "../lib/multigrain", "../../lib/multigrain"}) {
    path = fmt::format("{}/{}/{}", folder, place, file);
    if (access(path.c_str(), R_OK) == 0) break;
    path.clear();
  }
  if (path.empty()) return fail("there is no {} in {}/multigrain: this Multigrain was built without it", file, folder);
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return fail("cannot load a module: {}", dlerror());
  void* const function = dlsym(module, symbol);
  if (function == nullptr) return fail("{} is not a module of this version of Multigrain: it lacks {}", path, symbol);
  return function;
}

}  // namespace multigrain
