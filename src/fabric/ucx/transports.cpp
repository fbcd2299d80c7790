#include "fabric/ucx/transports.h"

#include <algorithm>
#include <array>
#include <vector>

namespace multigrain::ucx {
namespace {

constexpr std::string_view kSystemV = "sysv";
constexpr std::string_view kAll = "all";

// A name that stands for System V shared memory and other transports.
struct Group {
  std::string_view name;
  std::array<std::string_view, 4> others;  // empty elements stand for none
};
constexpr Group kGroups[] = {
    {"mm", {"posix", "xpmem"}}, {"sm", {"posix", "xpmem", "knem", "cma"}}, {"shm", {"posix", "xpmem", "knem", "cma"}}};

std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    items.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return items;
}

// Returns the name of a transport without UCX's marks: "\sysv" is the transport of that name and no group; "ud:aux" is
// the transport ud, used only while UCX connects.
std::string_view plain_name(std::string_view item) {
  if (item.starts_with('\\')) item.remove_prefix(1);
  return item.substr(0, item.find(':'));
}

}  // namespace

Result<std::string> without_system_v(std::string_view wanted, std::span<const std::string> available) {
  const bool negated = wanted.starts_with('^');
  const std::vector<std::string_view> items = items_of(negated ? wanted.substr(1) : wanted);
  const bool has_system_v = std::ranges::find(available, kSystemV) != available.end();
  // System V is left out by name only if this UCX has it, because UCX would warn of a name that it does not know.
  if (negated) return std::string(wanted) + (has_system_v ? ",sysv" : "");
  if (std::ranges::find(items, kAll) != items.end()) return std::string(has_system_v ? "^sysv" : kAll);

  std::string allowed;
  const auto allow = [&](std::string_view item) { allowed.append(allowed.empty() ? "" : ",").append(item); };
  for (const std::string_view item : items) {
    if (plain_name(item) == kSystemV)
      return fail(
          "UCX_TLS={} asks for sysv: everybody of your group could read and write such memory, so Multigrain does not "
          "use it; name posix in its place",
          wanted);
    const auto* const group = std::ranges::find(kGroups, item, &Group::name);
    if (group == std::end(kGroups)) {
      allow(item);
      continue;
    }
    for (const std::string_view one : group->others)
      if (std::ranges::find(available, one) != available.end()) allow(one);
  }
  return allowed;
}

}  // namespace multigrain::ucx
