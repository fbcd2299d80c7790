// The functions of multigrain-ucx.so. load.cpp finds them by their names, so that nothing else is linked with UCX.
#pragma once

#include "fabric/ucx/ucx_fabric.h"

namespace multigrain::ucx {

// Agrees on the secret of the job (job_secret.h).
inline constexpr const char* kAgreeFunction = "multigrain_ucx_agree";
using AgreeFunction = void (*)(Wireup& wireup, JobSecret& secret, Status& result);

inline constexpr const char* kModuleFunction = "multigrain_ucx_open";
// Opens UCX with the environment as it is. The fabric belongs to the caller.
using ModuleFunction = void (*)(const UcxOptions& options, Result<std::unique_ptr<UcxFabric>>& result);

}  // namespace multigrain::ucx
