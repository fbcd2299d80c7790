#include "launch/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>

namespace multigrain {
namespace {

// An address as IPv6 has it. IPv4 addresses are mapped (::ffff:a.b.c.d), so that both kinds can be compared.
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

}  // namespace multigrain
