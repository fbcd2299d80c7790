// The one function of multigrain-ucx.so.
#pragma once

#include "fabric/ucx/ucx_fabric.h"

namespace multigrain::ucx {

inline constexpr const char* kModuleFunction = "multigrain_ucx_open";
// Opens UCX with the environment as it is. The fabric belongs to the caller.
using ModuleFunction = void (*)(const UcxOptions& options, Result<std::unique_ptr<UcxFabric>>& result);

}  // namespace multigrain::ucx
