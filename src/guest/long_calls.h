// Makes calls by packages (package.h), in parts if they are about more than one package has room for.
#pragma once

#include "guest/calls.h"

namespace multigrain::guest {

// Does what pass() does, when the kernel must not be given addresses of the guest.
long pass_copied(Call& call);

}  // namespace multigrain::guest
