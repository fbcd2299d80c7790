// Modules: parts of Multigrain that need a library which most runs do without (UCX, PMIx, PMI-2). Each is a shared
// object of its own, multigrain-NAME.so, and is loaded when a run asks for it.
//
// They lie in the folder "multigrain" beside libmultigrain.so: <libdir>/multigrain when installed,
// <build>/lib/multigrain in the build tree, where they are also found from <build>/bin (tools) and <build>/bin/tests
// (tests).
#pragma once

#include <string_view>

#include "base/error.h"

namespace multigrain {

// Loads multigrain-NAME.so and returns the address of its function `symbol`. The module stays loaded. Errors: there is
// no such module; a library that it needs is missing (in the loader's words); it lacks the function.
Result<void*> load_module(std::string_view name, const char* symbol);

}  // namespace multigrain
