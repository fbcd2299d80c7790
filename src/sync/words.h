// What of synchronisation is in a node's kWords segment (fabric/words.h).
#pragma once

#include <cstdint>

#include "fabric/words.h"

namespace multigrain::words {

// A network lock has three words (network_lock.h), for which it has 32 bytes.
inline constexpr uint64_t kLocks = uint64_t{2} << 20;
inline constexpr uint64_t kLockCount = uint64_t{1} << 21;
inline constexpr uint64_t kBytesPerLock = 32;
inline constexpr Range kLockWords{kLocks, kLockCount* kBytesPerLock};

// At the manager of a condition: how many waiters the conditions have whose index falls on this word (server.cpp).
inline constexpr uint64_t kCondWaiters = uint64_t{329} << 18;
inline constexpr uint64_t kCondWaiterWords = uint64_t{1} << 16;
inline constexpr Range kCondWords{kCondWaiters, kCondWaiterWords * sizeof(uint64_t)};
constexpr uint64_t cond_waiters_at(uint32_t index) {
  return kCondWaiters + index % kCondWaiterWords * sizeof(uint64_t);
}

// Whether a node wants a lock whose release was deferred at this node (network_lock.h), and, each on a cache line of its own, the
// words of a rendezvous (rendezvous.h): the round for which this node was asked, and one; and, at node 0, the word of
// rendezvous_engine.h, and how often nodes have come to one. On a page of their own.
inline constexpr uint64_t kLockWanted = uint64_t{331} << 18;
inline constexpr uint64_t kRendezvousAsked = kLockWanted + 1024;
inline constexpr uint64_t kRendezvousRound = kLockWanted + 2048;
inline constexpr uint64_t kRendezvousArrived = kLockWanted + 3072;
inline constexpr Range kLockWantedWord{kLockWanted, 4096};

}  // namespace multigrain::words
