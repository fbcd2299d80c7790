// The functions that the system maps into every process (vdso). The guest calls the host's.
#pragma once

#include "base/error.h"

namespace multigrain::guest {

// Takes getcpu() out of its table of symbols, in this process's copy: it would say which processor of the machine this is, and a
// guest on several nodes has others. Its C library makes the system call instead.
Status hide_processor_number();

}  // namespace multigrain::guest
