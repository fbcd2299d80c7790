// The vdso has functions that the kernel maps into every process. The guest calls the host's, of which one
// must be hidden.
#pragma once

#include "base/error.h"

namespace multigrain::guest {

// Takes getcpu() out of the vdso's table of symbols, in this process's copy: it would say which processor of the
// machine this is, and a guest on several nodes has others. The guest's C library makes the system call instead.
Status hide_processor_number();

}  // namespace multigrain::guest
