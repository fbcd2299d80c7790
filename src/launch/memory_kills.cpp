#include "launch/memory_kills.h"

#include <fstream>
#include <sstream>
#include <string_view>

#include "base/quantity.h"

namespace multigrain {
namespace {

// Returns the number behind "oom_kill" in a file of lines "name number".
std::optional<uint64_t> count_in(const std::string& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, number;
    if (words >> name >> number && name == "oom_kill") return parse_whole(number);
  }
  return std::nullopt;
}

// Returns the count of this process's control group, for groups of both versions: the file has "0::/path", or
// "8:memory:/path" among lines for other controllers. In a container the path may be the group's name outside of it,
// while the group itself is mounted at the root.
std::optional<uint64_t> count_of_group(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(",memory,") == std::string::npos) continue;
    const std::string mounted = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    const char* const file = unified ? "/memory.events" : "/memory.oom_control";
    for (const std::string& folder : {mounted + path, mounted})
      if (const auto count = count_in(folder + file)) return count;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> count_memory_kills(const std::string& root) {
  const auto count = count_of_group(root);
  return count ? count : count_in(root + "/proc/vmstat");
}

}  // namespace multigrain
