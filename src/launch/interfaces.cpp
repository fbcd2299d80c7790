#include "launch/interfaces.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

namespace multigrain {
namespace {

// IPv4 addresses as IPv6 has them (::ffff:a.b.c.d), so that both compare.
using Address = std::array<uint8_t, 16>;

Address mapped(const in_addr& four) {
  Address address{};
  address[10] = address[11] = 0xff;
  std::memcpy(&address[12], &four, sizeof four);
  return address;
}

std::optional<Address> parse(const std::string& text) {
  const std::string numeric = text.substr(0, text.find('%'));
  in_addr four{};
  if (inet_pton(AF_INET, numeric.c_str(), &four) == 1) return mapped(four);
  Address six{};
  if (inet_pton(AF_INET6, numeric.c_str(), six.data()) == 1) return six;
  return std::nullopt;
}

std::optional<Address> address_of(const sockaddr* socket) {
  if (socket == nullptr) return std::nullopt;
  if (socket->sa_family == AF_INET) return mapped(reinterpret_cast<const sockaddr_in*>(socket)->sin_addr);
  if (socket->sa_family != AF_INET6) return std::nullopt;
  Address six{};
  std::memcpy(six.data(), &reinterpret_cast<const sockaddr_in6*>(socket)->sin6_addr, six.size());
  return six;
}

}  // namespace

std::string interface_with(const std::string& address) {
  const std::optional<Address> wanted = parse(address);
  ifaddrs* list = nullptr;
  if (!wanted || getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (address_of(entry->ifa_addr) != wanted) continue;
    // "eth0:1" is another name of eth0.
    const std::string name = entry->ifa_name;
    return name.substr(0, name.find(':'));
  }
  return {};
}

namespace {

std::set<std::string> usable_devices() {
  std::set<std::string> names;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      const std::string name = entry->ifa_name;
      if (address_of(entry->ifa_addr) && (entry->ifa_flags & IFF_UP) != 0) names.insert(name.substr(0, name.find(':')));
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
                  usable.size() == 1 ? "is only" : "are", usable.empty() ? "none" : fmt::format("{}", fmt::join(usable, ", ")));
    start = end + 1;
  }
  return {};
}

}  // namespace multigrain
