// This says where the hazards of a node's threads are in its kWords segment (fabric/words.h,
// docs/internals/fine-grain.md).
#pragma once

#include <cstdint>

#include "fabric/words.h"

namespace multigrain::words {

// In the first cache line the first word counts the slots that there have been, the second word is the node's rights
// epoch, and the third counts the requesters' waits for its hazards. Then there is a cache line for each slot
// (hazard_slots.h).
inline constexpr uint64_t kHazards = uint64_t{74} << 20;
inline constexpr uint64_t kHazardSlots = 4096 - 1;
inline constexpr uint64_t kBytesPerHazardSlot = 64;
inline constexpr uint64_t kRightsEpoch = kHazards + sizeof(uint64_t);
inline constexpr uint64_t kHazardWaits = kRightsEpoch + sizeof(uint64_t);
inline constexpr Range kHazardWords{kHazards, (1 + kHazardSlots) * kBytesPerHazardSlot};
static_assert(kHazards % 4096 == 0);

}  // namespace multigrain::words
