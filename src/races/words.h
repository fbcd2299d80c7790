// This says where the words of --races are in a node's kWords segment (fabric/words.h).
#pragma once

#include <cstdint>

#include "fabric/words.h"

namespace multigrain::words {

inline constexpr uint64_t kRaces = (uint64_t{331} << 18) + 4096;
// The node's clock, with a word for each node (races/clock.h).
inline constexpr uint64_t kRaceClock = kRaces;
// The section that the node began when it arrived at a barrier of all processors last, and the one before: for barriers by
// turns. A node comes to the same word again when it arrives at the barrier after the next, and by then all have left this one.
inline constexpr uint64_t kRaceBarriers = kRaces + 768;
// The node's stream of accesses (races/stream.h) is a ring of words. The node writes how many words it has appended ever,
// and the judge how many it has read.
inline constexpr uint64_t kRaceStreamEnd = kRaces + 1024;
inline constexpr uint64_t kRaceStreamRead = kRaces + 2048;
// The judge tells the node of suspected pages in a ring of words, and how many it has told of ever.
inline constexpr uint64_t kRaceSuspectsEnd = kRaces + 3072;
inline constexpr uint64_t kRaceSuspects = kRaces + 4096;
inline constexpr uint64_t kRaceSuspectCount = 4096;
inline constexpr uint64_t kRaceStream = kRaceSuspects + kRaceSuspectCount * sizeof(uint64_t);
inline constexpr uint64_t kRaceStreamWords = 1u << 17;
inline constexpr Range kRaceWords{kRaces, kRaceStream + kRaceStreamWords * sizeof(uint64_t) - kRaces};

}  // namespace multigrain::words
