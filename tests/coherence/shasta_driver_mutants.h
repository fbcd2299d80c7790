// Deliberate faults of Shasta's driver. The sources of the driver that the test of the mutants is built from are the
// driver's own with these in them: shasta_driver_mutants.cmake makes them.
#pragma once

#include <cstdint>

#include "shasta_driver_faults.h"

namespace multigrain::shasta::explored {

enum class Mutant : uint8_t {
  kNone,
  kTouchedBeforeLock,      // a handler looks whether the page is touched, and then takes the lock
  kPublishesWithoutLock,   // a first touch publishes rights without the lock
  kClaimAlwaysWins,        // whoever claims a page takes itself for the home
  kTouchedBeforeFlags,     // a page counts as touched, and then its frame is filled with flags
  kDoesNotWaitForHazards,  // rights are lowered under published hazards
  kLoadsNotWaitedFor,      // hazards of loads are not waited for where all rights are taken
  kHazardsBeforeWords,     // hazards are waited for, and then words are changed
  kDoesNotForget,          // what the node caches of a line is not voided
  kForgetsLate,            // hazards are waited for, and then what is cached is voided
  kFirstWordOnly,          // of a block of several lines the first one's word alone is lowered
  kNoFlags,                // an invalid frame keeps its data
  kRecordRemovedEarly,     // a block's record is removed when no request is out, whatever else waits
  kNobodyIsWoken,          // kWake has no effect
  kLooksLate,              // a thread that waits lets go of the lock, and then says that it waits
  kOpensWithoutLock,       // a granted hazard is published when the lock has been let go of
  kOutstandingLate,        // fences learn of a store when it has been made
  kWaitsInHandler,         // a message waits in its handler until hazards are cleared
  kDoesNotAwait,           // what is deferred is carried out, whatever its hazards do
  kDoesNotUndo,            // a deferred message leaves the block as if it had been carried out
  kRaisesFrozen,           // a miss gives rights to a block for which a message is deferred
  kRetryIsLost,            // nobody is told that something is deferred
  kRestIsForgotten,        // what is known of a block at rest is lost when its message is deferred
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
  kForgetsForwarded,       // what waited for a granted hazard is not served
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);
// The machine on which it is found soon.
[[nodiscard]] const char* machine_for(Mutant mutant);
[[nodiscard]] const char* machine_for(Fault fault);

// The one that is tried.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::shasta::explored
