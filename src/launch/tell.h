// Sentences on standard error, by which mgrun tells its user something.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace multigrain {

// Writes a sentence. A sentence that cannot be written is lost: the run is worth more.
template <typename... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = fmt::format("mgrun: {}\n", fmt::format(format, std::forward<Args>(args)...));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace multigrain
