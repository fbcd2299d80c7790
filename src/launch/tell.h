// What mgrun says to its user: sentences on standard error.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace multigrain {

// A sentence that cannot be written is lost: there is nobody to tell, and the run is worth more.
template <typename... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = fmt::format("mgrun: {}\n", fmt::format(format, std::forward<Args>(args)...));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace multigrain
