// This says where the homes of first-touch pages are in the kWords segment of the node that arbitrates them
// (fabric/words.h): each page has a word, which says what node has claimed it (home_claims.h).
#pragma once

#include <cstdint>

#include "fabric/words.h"

namespace multigrain::words {

inline constexpr uint64_t kHomes = uint64_t{297} << 18;
inline constexpr uint64_t kHomeCount = uint64_t{1} << 20;
inline constexpr Range kHomeWords{kHomes, kHomeCount * sizeof(uint64_t)};

}  // namespace multigrain::words
