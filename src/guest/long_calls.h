// Calls that are made by packages (package.h), in parts if they are about more than one has room for.
#pragma once

#include "guest/calls.h"

namespace multigrain::guest {

// As pass(), when the system must not be given addresses of the guest.
long pass_copied(Call& call);

}  // namespace multigrain::guest
