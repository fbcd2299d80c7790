// The rights of a view whose accesses compiled code checks by itself: everything is allowed, so no access faults.
#pragma once

#include "memory/access_rights.h"

namespace multigrain {

// Opens the whole view, which may not be moved. Errors: the kernel refuses. Start-up only.
Result<std::unique_ptr<AccessRights>> open_rights(const Region& region);

}  // namespace multigrain
