// The place of the network locks in a node's kWords segment (fabric/words.h). A lock has three words (network_lock.h),
// for which it has 32 bytes.
#pragma once

#include <cstdint>

#include "fabric/words.h"

namespace multigrain::words {

inline constexpr uint64_t kLocks = uint64_t{2} << 20;
inline constexpr uint64_t kLockCount = uint64_t{1} << 21;
inline constexpr uint64_t kBytesPerLock = 32;
inline constexpr Range kLockWords{kLocks, kLockCount* kBytesPerLock};

}  // namespace multigrain::words
