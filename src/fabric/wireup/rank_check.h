// Checks that the launcher's library and the environment agree on which node this process is.
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
