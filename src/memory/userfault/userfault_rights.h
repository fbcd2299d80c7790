// Access rights by userfaultfd are bits of page-table entries: no mapping is ever split, and the changes of two threads
// do not exclude each other. This needs Linux 6.4.
#pragma once

#include <memory>

#include "memory/access_rights.h"

namespace multigrain::userfault {

// Returns whether this kernel lets this process use what is needed. The error says precisely what is missing. Start-up
// only.
Status available();

// Registers the region's view. Fails if available() does, or if the kernel refuses the registration.
Result<std::unique_ptr<AccessRights>> make(const Region& region);

}  // namespace multigrain::userfault
