#include "shasta_driver_mutants.h"

namespace multigrain::shasta::explored {

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kTouchedBeforeLock:
      return "a handler looks whether a page is touched, and then takes the lock";
    case Mutant::kPublishesWithoutLock:
      return "a first touch publishes without the lock";
    case Mutant::kClaimAlwaysWins:
      return "whoever claims a page takes itself for the home";
    case Mutant::kTouchedBeforeFlags:
      return "a page counts as touched before it is filled with flags";
    case Mutant::kDoesNotWaitForHazards:
      return "rights are lowered under published hazards";
    case Mutant::kLoadsNotWaitedFor:
      return "hazards of loads are not waited for";
    case Mutant::kHazardsBeforeWords:
      return "hazards are waited for, and then words changed";
    case Mutant::kDoesNotForget:
      return "what a node caches of a line is not voided";
    case Mutant::kForgetsLate:
      return "hazards are waited for, and then what is cached voided";
    case Mutant::kFirstWordOnly:
      return "of a block the first line's word alone is lowered";
    case Mutant::kNoFlags:
      return "an invalid frame keeps its data";
    case Mutant::kRecordRemovedEarly:
      return "a record is removed while something waits";
    case Mutant::kNobodyIsWoken:
      return "nobody is woken";
    case Mutant::kLooksLate:
      return "a thread lets go of the lock, and then says that it waits";
    case Mutant::kOpensWithoutLock:
      return "a granted hazard is published without the lock";
    case Mutant::kOutstandingLate:
      return "fences learn of a store when it has been made";
    case Mutant::kWaitsInHandler:
      return "a message waits in its handler until hazards are cleared";
    case Mutant::kDoesNotAwait:
      return "what is deferred is carried out under its hazards";
    case Mutant::kDoesNotUndo:
      return "a deferred message leaves the block as if it had been carried out";
    case Mutant::kRaisesFrozen:
      return "a miss gives rights to a block for which a message is deferred";
    case Mutant::kRetryIsLost:
      return "nobody is told that something is deferred";
    case Mutant::kRestIsForgotten:
      return "what is known of a block at rest is lost when its message is deferred";
    case Mutant::kOvertakesDeferred:
      return "messages are handled before those that were deferred";
    case Mutant::kIgnoresAcks:
      return "acknowledgements are not waited for";
    case Mutant::kFlagsBeforeCopy:
      return "the flag value is written before the data is copied";
    case Mutant::kAnswersEarly:
      return "an invalidation that overtakes data is acknowledged, and the data kept";
    case Mutant::kUpgradesAlways:
      return "an upgrade whose copy is gone is granted";
    case Mutant::kFencesOwnOnly:
      return "a fence waits for the processor's own stores only";
    case Mutant::kDoesNotStall:
      return "a store does not stall under sc";
    case Mutant::kNotMasked:
      return "queued stores are not masked";
    case Mutant::kMasksUnderHazards:
      return "words are masked under another processor's batch";
    case Mutant::kDoesNotHold:
      return "a block is handed on before a granted hazard is published";
    case Mutant::kForgetsForwarded:
      return "what has waited for a granted hazard is not served";
    case Mutant::kCount:
      break;
  }
  return "?";
}

const char* machine_for(Mutant mutant) {
  switch (mutant) {
    case Mutant::kTouchedBeforeLock:
    case Mutant::kPublishesWithoutLock:
      return "the home touches what another asks for, sc";
    case Mutant::kClaimAlwaysWins:
      return "nodes claim a page, sc";
    case Mutant::kTouchedBeforeFlags:
      return "two of a node touch what is at home elsewhere, sc";
    case Mutant::kDoesNotWaitForHazards:
    case Mutant::kHazardsBeforeWords:
    case Mutant::kNoFlags:
    case Mutant::kNobodyIsWoken:
    case Mutant::kLooksLate:
      return "the home touches and stores, another too, sc";
    case Mutant::kLoadsNotWaitedFor:
      return "nodes claim a page, rc";
    case Mutant::kDoesNotForget:
    case Mutant::kForgetsLate:
      return "cached: the home adds twice, another once, sc";
    case Mutant::kFirstWordOnly:
      return "a block of two lines, sc";
    case Mutant::kRecordRemovedEarly:
    case Mutant::kOpensWithoutLock:
      return "ownership comes back, sc";
    case Mutant::kOutstandingLate:
      return "WRC with fences, two of the home, rc";
    case Mutant::kWaitsInHandler:
    case Mutant::kDoesNotAwait:
    case Mutant::kDoesNotUndo:
    case Mutant::kRetryIsLost:
      return "a page fault under a hazard, sc";
    case Mutant::kRestIsForgotten:
      return "a page fault under a hazard of a block at home elsewhere, sc";
    case Mutant::kRaisesFrozen:
      return "a page fault under a hazard, and a miss on the same block, sc";
    case Mutant::kOvertakesDeferred:
      return "a page fault under a hazard, and two that want the block, sc";
    case Mutant::kIgnoresAcks:
      return "by transitions: SB, sc; homes 2 2, copies";
    case Mutant::kFlagsBeforeCopy:
      return "by transitions: coherence of two writers, sc; homes 0";
    case Mutant::kAnswersEarly:
      return "by transitions: a reader is overtaken by an invalidation, sc";
    case Mutant::kUpgradesAlways:
      return "by transitions: 2+2W, sc; homes 2 2, copies";
    case Mutant::kFencesOwnOnly:
      return "by transitions: WRC with fences, two on one node, rc; homes 2 0, copies";
    case Mutant::kDoesNotStall:
      return "by transitions: SB, sc; homes 1 0";
    case Mutant::kNotMasked:
      return "by transitions: SB with own loads, rc; homes 1 0, copies";
    case Mutant::kMasksUnderHazards:
      return "by transitions: a batch loads what another processor stores to, rc";
    case Mutant::kDoesNotHold:
    case Mutant::kForgetsForwarded:
      return "by transitions: atomic additions, sc";
    case Mutant::kNone:
    case Mutant::kCount:
      break;
  }
  return "";
}
const char* machine_for(Fault fault) {
  switch (fault) {
    case Fault::kSeesNoHazards:
      return "the home touches and stores, another too, sc";
    case Fault::kMessagesOvertake:
      return "upgrades race, sc";
    case Fault::kServiceIsNotWoken:
      return "ownership comes back, sc";
    case Fault::kStoreWithoutHazard:
    case Fault::kLookThenPublish:
      return "two of the home touch what another asks for, sc";
    case Fault::kNone:
    case Fault::kCount:
      break;
  }
  return "";
}

}  // namespace multigrain::shasta::explored
