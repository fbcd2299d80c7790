// What the launcher's library says about this process and what the runtime was told must agree.
#pragma once

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace multigrain {

// Compares `rank` of `size`, from the launcher's library, with MULTIGRAIN_NODE and MULTIGRAIN_NODES, by which the
// process has already chosen its heap.
inline Status check_rank(unsigned rank, unsigned size) {
  const auto number = [](const char* variable) {
    const char* const text = std::getenv(variable);
    unsigned value = ~0u;
    if (text != nullptr) {
      const std::string_view all = text;
      std::from_chars(all.data(), all.data() + all.size(), value);
    }
    return value;
  };
  if (number("MULTIGRAIN_NODE") == rank && number("MULTIGRAIN_NODES") == size) return {};
  return fail(
      "the launcher knows this process as number {} of {}, but MULTIGRAIN_NODE and MULTIGRAIN_NODES say otherwise; "
      "unset them, and let mpirun or srun start the program itself",
      rank, size);
}

}  // namespace multigrain
