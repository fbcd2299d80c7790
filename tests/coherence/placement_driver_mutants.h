// A mutant is a deliberate fault of placed pages. The tests of the mutants, and the command `explore`, are built from the
// product's own sources with these faults in them (placement_driver_mutants.cmake). Where no mutant is chosen, they do what the
// product does.
#pragma once

#include <cstdint>

namespace multigrain::placement::explored {

enum class Mutant : uint8_t {
  kNone,
  // These are faults of transitions (placement_machine.h),
  kNoHold,                 // an order takes a page that a thread has just been granted
  kHoldNotAwaited,         // nobody is told that an order waits for the end of the hold
  kOtherCopiesStay,        // a write does not flush the other copies
  kOwnCopyStays,           // a page becomes global-writable, and the requester keeps its copy to read
  kSyncKeepsRight,         // the node that gives a page back may still write it
  kFlushBringsNothing,     // a node that may write drops the page, and does not give it back
  kAnswersFirst,           // an order is answered, and then rights are taken
  kMapsFirst,              // rights are given, and then the page is filled
  kUnmapForgotten,         // a page leaves global memory, and nodes go on using it there
  kGrantsTooEarly,         // a node is granted the page when the first of those that have it has answered
  kZerosAfterWrite,        // a page that has been written is filled with zeros
  kStaleUpgrade,           // a node whose copy has been flushed is granted the right to write alone
  kReadersForgotten,       // threads that wait to read are not granted a page that may be written
  kWritersForgotten,       // threads that wait to write are forgotten when the page is granted to read
  kRequestForgotten,       // a request that comes while the home works is forgotten
  kOneRequestForAll,       // when a request has been served, those that wait are not
  kPinIgnored,             // a pinned page stays where it is until it is asked for
  kThawTellsNobody,        // a thawed page has no users any more, and these are not told
  kThawForgotten,          // a thaw that comes while the home works is forgotten
  kDiscardKeepsCopies,     // a page is discarded, and copies of it stay
  kDiscardKeepsContents,   // a page that has been discarded has its contents still
  kDiscarderForgotten,     // a node that discards is not told that it is done
  kHolderForgotten,        // the entry forgets who has the page, when another node gets it as well
  kReferenceHoldsNothing,  // a reference begins, and nothing keeps the page where it is
  kSyncedCopyRefused,      // a reference that has waited behind a sync is not granted the copy that the node has kept
  // and these of the driver (placement_driver_world.h).
  kFirstOfDriver,
  kDataBeforeRights = kFirstOfDriver,  // a page is sent, and then rights are taken
  kAnswerBeforeRights,                 // an order is answered, and then rights are taken
  kMapsBeforeData,                     // rights are given, and then the page is filled
  kHoldNotListed,                      // the service thread is not told that an order waits for the end of a hold
  kListedTwice,                        // a page is put into the list though it is there
  kNextReadLate,                       // the next page of the list is read when this one may have been put back
  kReturningForgotten,                 // a hold ends though a thread that was granted the page does not run yet
  kReturnedNotListed,                  // the last thread that was granted a page does not put it into the list
  kWakesNobody,                        // threads that wait are not woken
  kGrantSeenLate,       // a thread that is going to wait looks at the grants after it has let go of the page
  kStaysElsewhere,      // the home's frame stays mapped when the node stops using global memory
  kOwnFrameForGlobal,   // the home's frame is not mapped: the node uses its own
  kAnswerForgotten,     // the actions that follow from the policy's answer are not carried out
  kNotToThaw,           // a page is not put into the list of pages to thaw
  kThawListedTwice,     // a page is put into that list though it is there
  kThawedStaysListed,   // a page that was taken from that list is never put there again
  kNotPinned,           // a page is not pinned before the first event
  kReferenceEndsEarly,  // a reference is over before its operation is made
  kRefersToOwnFrame,    // a reference to a page in global memory is made in the node's own frame
  kSaidRemoteForGood,   // the table says of a page that has come back that it is remote
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);

// This is the mutant that runs.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::placement::explored
