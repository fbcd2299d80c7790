// The numbers of UCX's descriptors: where the program has numbers for itself, they lie among the runtime's own
// (base/own_descriptors.h). The module has a copy of base, so the runtime hands it what belongs to its own.
#pragma once

namespace multigrain::ucx_descriptors {

// Says which numbers the runtime has: the lowest one, and the function that moves a descriptor there, which has the
// contract of own_descriptors::keep(). A process does this before it opens UCX, each time with the same arguments. 0 and
// null: the numbers are not divided.
void use(int lowest, int (*keep)(int fd));

// Returns the same file under a number of the runtime's own, and closes `fd`; if the numbers are not divided, returns
// `fd` itself. Returns -1 with errno on failure, or if `fd` is -1. Any thread may call this.
int keep(int fd);

// Returns the lowest of the runtime's own numbers; 0 if the numbers are not divided. Any thread may call this.
int lowest();

}  // namespace multigrain::ucx_descriptors
