// A mutant is a deliberate fault of Shasta's driver. The test of the mutants is built from the driver's own sources
// with these faults in them; shasta_driver_mutants.cmake makes them.
#pragma once

#include <cstdint>

#include "shasta_driver_faults.h"

namespace multigrain::shasta::explored {

enum class Mutant : uint8_t {
  kNone,
  kTouchedBeforeLock,      // a handler looks whether the page is touched, and then takes the lock
  kPublishesWithoutLock,   // a first touch publishes rights without the lock
  kClaimAlwaysWins,        // a node that claims a page always takes itself for the home
  kTouchedBeforeFlags,     // a page counts as touched, and then its frame is filled with flags
  kDoesNotWaitForHazards,  // rights are lowered under published hazards
  kLoadsNotWaitedFor,      // hazards of loads are not waited for where all rights are taken
  kHazardsBeforeWords,     // hazards are waited for, and then words are changed
  kDoesNotForget,          // the node's cached rights to a line are not invalidated
  kForgetsLate,            // hazards are waited for, and then cached rights are invalidated
  kFirstWordOnly,          // only the first line's word of a block of several lines is lowered
  kNoFlags,                // an invalid frame keeps its data
  kRecordRemovedEarly,     // a block's record is removed when no request is out, although something else waits
  kNobodyIsWoken,          // kWake has no effect
  kLooksLate,              // a thread that waits lets go of the lock, and then says that it waits
  kOpensWithoutLock,       // a granted hazard is published when the lock has been let go of
  kOutstandingLate,        // fences learn of a store when it has been made
  kWaitsInHandler,         // a message waits in its handler until hazards are cleared
  kDoesNotAwait,           // a deferred message is carried out, whatever its hazards do
  kDoesNotUndo,            // a deferred message leaves the block as if it had been carried out
  kRaisesFrozen,           // a miss gives rights to a block for which a message is deferred
  kRetryIsLost,            // the service thread is not told that a message is deferred
  kRestIsForgotten,        // the state of a block at rest is lost when a message about it is deferred
  kOvertakesDeferred,      // messages are handled before those that were deferred
  kIgnoresAcks,            // an exclusive reply counts as complete
  kFlagsBeforeCopy,        // the flag value is written before the data is copied for the successor
  kAnswersEarly,           // an invalidation that overtakes data is acknowledged, and the data kept
  kUpgradesAlways,         // the home grants upgrades whose copy is gone
  kFencesOwnOnly,          // a fence waits for the processor's own stores only
  kDoesNotStall,           // sc: a store that misses does not stall
  kNotMasked,              // queued stores are not masked: loads of their processor hit the old value
  kMasksUnderHazards,      // words are masked under another processor's batch
  kDoesNotHold,            // a block is handed on before a hazard that was granted is published
  kForgetsForwarded,       // a message that waited for a granted hazard is not served
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);
// Returns the machine that refutes the mutant soon.
[[nodiscard]] const char* machine_for(Mutant mutant);
[[nodiscard]] const char* machine_for(Fault fault);

// This is the mutant that runs.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::shasta::explored
