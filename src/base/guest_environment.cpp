#include "base/guest_environment.h"

#include <algorithm>

namespace multigrain::guest {
namespace {

constexpr std::string_view kPrefix = "MULTIGRAIN_GUEST_";

// Returns whether the variable means something to the host, its loader or its libraries.
bool is_for_host(std::string_view variable) {
  for (const std::string_view prefix : {"MULTIGRAIN_", "LD_", "GLIBC_TUNABLES=", "MALLOC_", "UCX_"})
    if (variable.starts_with(prefix)) return true;
  return false;
}

}  // namespace

std::string name_for_host(std::string_view variable) {
  return is_for_host(variable) ? std::string(kPrefix).append(variable) : std::string(variable);
}

std::vector<std::string> environment_for_guest(const char* const* environment) {
  std::vector<std::string> result;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    if (variable.starts_with(kPrefix))
      result.emplace_back(variable.substr(kPrefix.size()));
    else if (!is_for_host(variable))
      result.emplace_back(variable);
  }
  return result;
}

void let_openmp_sleep(std::vector<std::string>& environment) {
  const auto decides = [](std::string_view variable) {
    for (const std::string_view name : {"OMP_WAIT_POLICY=", "KMP_BLOCKTIME=", "KMP_LIBRARY=", "GOMP_SPINCOUNT="})
      if (variable.starts_with(name)) return true;
    return false;
  };
  if (std::ranges::none_of(environment, decides)) environment.emplace_back("OMP_WAIT_POLICY=passive");
}

}  // namespace multigrain::guest
