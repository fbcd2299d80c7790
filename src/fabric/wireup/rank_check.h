// What the launcher's library says about this process and what the runtime was told must agree.
#pragma once

#include <cstdlib>

#include "base/error.h"
#include "base/quantity.h"

namespace multigrain {

// Compares `rank` of `size`, from the launcher's library, with MULTIGRAIN_NODE and MULTIGRAIN_NODES, by which the
// process has already chosen its heap.
inline Status check_rank(unsigned rank, unsigned size) {
  const auto is = [](const char* variable, unsigned number) {
    const char* const text = std::getenv(variable);
    return text != nullptr && parse_whole(text) == number;
  };
  if (is("MULTIGRAIN_NODE", rank) && is("MULTIGRAIN_NODES", size)) return {};
  return fail(
      "the launcher knows this process as number {} of {}, but MULTIGRAIN_NODE and MULTIGRAIN_NODES say otherwise; "
      "unset them, and let mpirun or srun start the program itself",
      rank, size);
}

}  // namespace multigrain
