// Where compiled code translates its accesses, the runtime's own accesses for the program are translated by these functions.
// The calling thread has a hazard published over what it looks up, so that what it finds holds until it clears that.
#pragma once

#include <cstdint>

namespace multigrain::checks {

// Returns whether accesses to shared memory are translated in this run.
bool translates();
// Returns whether the calling thread's table allows to load, or to store to, all of [begin, end), which is shared.
bool is_translated(uintptr_t begin, uintptr_t end, bool stores);
// Lets the protocol allow that where the table does not. The calling thread has no hazard published. Another node may have
// taken pages away again when this returns. Returns false if a page is not allocated, so that the access has to fault.
bool translate(uintptr_t begin, uintptr_t end, bool stores);

}  // namespace multigrain::checks
