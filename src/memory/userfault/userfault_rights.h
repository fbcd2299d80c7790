// Access rights by userfaultfd: rights are bits of page-table entries, no mapping is ever split, and the changes of two
// threads do not exclude each other. Needs Linux 6.4.
#pragma once

#include <memory>

#include "memory/access_rights.h"

namespace multigrain::userfault {

// Whether this kernel lets this process use what is needed; the error says precisely what is missing. Start-up only.
Status available();

// Registers the region's view. Fails where available() does, and if the kernel refuses the registration.
Result<std::unique_ptr<AccessRights>> make(const Region& region);

}  // namespace multigrain::userfault
