// A mutant is a deliberate fault of sequentially consistent pages. The test of the mutants, and the command `explore`,
// are built from the product's own sources with these faults in them (sc_driver_mutants.cmake). Where no mutant is
// chosen, they do what the product does.
#pragma once

#include <cstdint>

namespace multigrain::sc::explored {

enum class Mutant : uint8_t {
  kNone,
  // These are faults of transitions,
  kNoHold,              // a message takes a page that a thread has just been granted
  kReturningForgotten,  // a hold ends though a thread that was granted the page does not run yet
  kHoldsWhileAsking,    // a copy is held while a request of the node is out
  kAsksWhileToGo,       // a copy that is to go causes a request
  kNoAcknowledgements,  // a write is complete before the acknowledgements are there
  kServedTooEarly,      // a forwarded request is served before the node's own request is complete
  kInvalidationLost,    // an invalidation that comes before the data is acknowledged, and forgotten
  kReadersForgotten,    // readers that wait when a write is complete are not granted the page
  kSupplierKeepsRight,  // the node that supplies a reader may still write
  kStaleSupplier,       // the home supplies a page of which its copy is to go
  kClearsOneCopy,       // a page is cleared by the home though other nodes have copies
  kClearsWhileHeld,     // a page is cleared though threads have just been granted it
  kClearedReadable,     // a page is cleared, and the home's threads keep the right to it
  // these of the driver,
  kDataBeforeRights,  // a page is sent, and then the right to write is taken
  kAckBeforeRights,   // an invalidation is acknowledged, and then rights are taken
  kMapsBeforeData,    // rights are given, and then the page is filled
  kHoldNotAwaited,    // the service thread is not told that something waits for the end of a hold
  kListedTwice,       // a page is put into the list though it is there
  kWakesNobody,       // threads that wait are not woken
  kDiscardForgotten,  // a node that discards is not told how many pages are cleared later
  kGrantedForgotten,  // what is outstanding is given up though a thread that was granted the page does not run yet
  kListForgotten,     // what is outstanding is given up though the page is in the list
  // and these of runs, and of prefetching.
  kUnlikeInRun,         // the actions of one page of a run are carried out for all its pages
  kUnlikeRightsInRun,   // the rights of one page of a run are taken for those of all
  kRunUnlockedEarly,    // a run's pages are unlocked, and then their actions are carried out
  kOnePageOfRun,        // only the first page of a run is fetched
  kOpensWhatIsNotHere,  // a prefetched page is mapped though it is not here
  kReaderNotGranted,    // a request for a reader that is expected to write grants the page to writers alone
  kGrantSeenLate,       // a thread that is going to wait looks at the grants after it has let go of the page
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);

// This is the mutant that runs.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::sc::explored
