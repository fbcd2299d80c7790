#include "base/guest_environment.h"

namespace multigrain::guest {
namespace {

constexpr std::string_view kPrefix = "MULTIGRAIN_GUEST_";

// Variables that mean something to the host, its loader or its libraries.
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

}  // namespace multigrain::guest
