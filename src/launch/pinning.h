// Which core each processor gets, when there are enough.
#pragma once

#include <vector>

#include "base/error.h"

namespace multigrain {

// How many processing units this process may use.
unsigned usable_cores();

// The operating system's number of the processing unit for each of `processors` processors, in their order, so that the
// processors of a node are neighbours: whole cores before their hardware threads. Only units that this process may use.
// Errors: fewer units than processors; the topology cannot be read.
Result<std::vector<unsigned>> choose_cores(unsigned processors);

}  // namespace multigrain
