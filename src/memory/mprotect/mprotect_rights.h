// Access rights by mprotect work everywhere. But each change takes the process's mapping lock for writing (all threads'
// changes and faults queue up behind it), and neighbours with different rights are separate mappings, whose number the
// kernel limits (vm.max_map_count). Reaching the limit ends the run with a sentence that names it.
#pragma once

#include <memory>

#include "memory/access_rights.h"

namespace multigrain::mprotection {

Result<std::unique_ptr<AccessRights>> make(const Region& region);

}  // namespace multigrain::mprotection
