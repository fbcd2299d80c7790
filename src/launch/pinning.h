// Pinning: chooses a core for each processor, if there are enough cores.
#pragma once

#include <vector>

#include "base/error.h"

namespace multigrain {

// Returns how many processing units this process may use.
unsigned usable_cores();

// Returns the operating system's number of the processing unit for each of `processors` processors, in their order, so
// that the processors of a node are neighbours. It takes a unit of every core before second hardware threads, and only
// units that this process may use. Errors: there are fewer units than processors; the topology cannot be read.
Result<std::vector<unsigned>> choose_cores(unsigned processors);

// The calling process, and those that it starts, use no other processing unit than that on which it runs now. If the system
// does not allow that, nothing changes.
void stay_on_this_core();

}  // namespace multigrain
