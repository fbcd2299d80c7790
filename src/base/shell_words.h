// Words of commands for a shell.
#pragma once

#include <string>
#include <string_view>

namespace multigrain {

// Returns one word of a POSIX shell's command that stands for `text`.
inline std::string quote_for_shell(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace multigrain
