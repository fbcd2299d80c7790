#include "guest/proc_files.h"

#include <unistd.h>

#include <fstream>
#include <iterator>

#include "guest/host.h"

namespace multigrain::guest {
namespace {

constexpr std::string_view kProc = "/proc/";

// The last part of a path to a file about this process; nullopt: it is about something else.
std::optional<std::string_view> own_name(std::string_view path) {
  if (!may_be_own_file(path)) return std::nullopt;
  path.remove_prefix(kProc.size());
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view process = path.substr(0, slash);
  path.remove_prefix(slash + 1);
  if (process != "self" && process != "thread-self" && process != std::to_string(getpid())) return std::nullopt;
  constexpr std::string_view kTask = "task/";
  if (path.starts_with(kTask)) {
    const size_t end = path.find('/', kTask.size());
    if (end == std::string_view::npos) return std::nullopt;
    path.remove_prefix(end + 1);
  }
  return path;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string with_ends(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all.append(text).push_back('\0');
  return all;
}

}  // namespace

bool may_be_own_file(std::string_view path) {
  return path.starts_with(kProc);
}

std::string real_path(const std::string& path) {
  const auto name = own_name(path);
  return name && *name == "exe" ? host().executable.path : path;
}

std::optional<std::string> own_link(const std::string& path) {
  const auto name = own_name(path);
  if (!name || *name != "exe") return std::nullopt;
  return host().executable.path;
}

std::optional<std::string> own_file(const std::string& path) {
  const auto name = own_name(path);
  if (!name) return std::nullopt;
  Host& state = host();
  if (*name == "maps") return state.space.describe(content_of("/proc/self/maps"));
  if (*name == "cmdline") return with_ends(state.executable.arguments);
  if (*name == "environ") return with_ends(state.environment);
  return std::nullopt;
}

}  // namespace multigrain::guest
