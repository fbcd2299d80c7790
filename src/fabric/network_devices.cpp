#include "fabric/network_devices.h"

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

namespace multigrain {
namespace {

bool has_address(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6);
}

std::set<std::string> usable_devices() {
  std::set<std::string> names;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      const std::string name = entry->ifa_name;
      if (has_address(*entry) && (entry->ifa_flags & IFF_UP) != 0) names.insert(name.substr(0, name.find(':')));
    }
  }
  namespace fs = std::filesystem;
  std::error_code none;
  for (const fs::directory_entry& adapter : fs::directory_iterator("/sys/class/infiniband", none))
    for (const fs::directory_entry& port : fs::directory_iterator(adapter.path() / "ports", none))
      names.insert(adapter.path().filename().string() + ":" + port.path().filename().string());
  return names;
}

}  // namespace

Status check_devices(const std::string& list) {
  if (list.empty()) return {};
  const std::set<std::string> usable = usable_devices();
  for (size_t start = 0; start <= list.size();) {
    const size_t end = std::min(list.find(',', start), list.size());
    const std::string name = list.substr(start, end - start);
    if (!usable.contains(name))
      return fail("there is no network device '{}' here that is up and has an address; there {} {}", name,
                  usable.size() == 1 ? "is only" : "are",
                  usable.empty() ? "none" : fmt::format("{}", fmt::join(usable, ", ")));
    start = end + 1;
  }
  return {};
}

}  // namespace multigrain
