// The unit of the processor's page tables, and so of what the kernel maps and protects, whatever a run's pages are.
#pragma once

#include <cstdint>

namespace multigrain {

inline constexpr uint64_t kHardwarePage = 4096;  // bytes

}  // namespace multigrain
