#include "placement_driver_mutants.h"

namespace multigrain::placement::explored {

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kNoHold:
      return "an order takes a page that a thread has just been granted";
    case Mutant::kHoldNotAwaited:
      return "nobody is told that an order waits for the end of the hold";
    case Mutant::kOtherCopiesStay:
      return "a write does not flush the other copies";
    case Mutant::kOwnCopyStays:
      return "a page becomes global-writable, and the requester keeps its copy";
    case Mutant::kSyncKeepsRight:
      return "the node that gives a page back may still write it";
    case Mutant::kFlushBringsNothing:
      return "a node that may write drops the page without giving it back";
    case Mutant::kAnswersFirst:
      return "an order is answered, and then rights are taken";
    case Mutant::kMapsFirst:
      return "rights are given, and then the page is filled";
    case Mutant::kUnmapForgotten:
      return "a page leaves global memory, and nodes go on using it there";
    case Mutant::kGrantsTooEarly:
      return "a page is granted when the first of those that have it has answered";
    case Mutant::kZerosAfterWrite:
      return "a page that has been written is filled with zeros";
    case Mutant::kStaleUpgrade:
      return "a node whose copy was flushed is granted the right to write alone";
    case Mutant::kReadersForgotten:
      return "readers are not granted a page that may be written";
    case Mutant::kWritersForgotten:
      return "writers are forgotten when a page is granted to read";
    case Mutant::kRequestForgotten:
      return "a request that comes while the home works is forgotten";
    case Mutant::kOneRequestForAll:
      return "when a request has been served, those that wait are not";
    case Mutant::kPinIgnored:
      return "a pinned page stays where it is until it is asked for";
    case Mutant::kThawTellsNobody:
      return "a thawed page has no users any more, and these are not told";
    case Mutant::kThawForgotten:
      return "a thaw that comes while the home works is forgotten";
    case Mutant::kDiscardKeepsCopies:
      return "a page is discarded, and copies of it stay";
    case Mutant::kDiscardKeepsContents:
      return "a page that has been discarded has its contents still";
    case Mutant::kDiscarderForgotten:
      return "a node that discards is not told that it is done";
    case Mutant::kHolderForgotten:
      return "the entry forgets who has the page when another node gets it as well";
    case Mutant::kReferenceHoldsNothing:
      return "a reference begins, and nothing keeps the page where it is";
    case Mutant::kSyncedCopyRefused:
      return "a reference that waited behind a sync is refused the copy";
    case Mutant::kDataBeforeRights:
      return "a page is sent, and then rights are taken";
    case Mutant::kAnswerBeforeRights:
      return "an order is answered before the driver takes rights";
    case Mutant::kMapsBeforeData:
      return "the driver gives rights, and then fills the page";
    case Mutant::kHoldNotListed:
      return "the service thread is not told that an order waits";
    case Mutant::kListedTwice:
      return "a page is listed though it is in the list";
    case Mutant::kNextReadLate:
      return "the next page of the list is looked up when the page may be listed again";
    case Mutant::kReturningForgotten:
      return "a hold ends before the thread that was granted the page runs";
    case Mutant::kReturnedNotListed:
      return "the last thread that was granted a page does not list it";
    case Mutant::kWakesNobody:
      return "readers that wait are not woken";
    case Mutant::kGrantSeenLate:
      return "a thread looks at the grants after it has let go of the page";
    case Mutant::kStaysElsewhere:
      return "a node that unmaps global memory goes on using it";
    case Mutant::kOwnFrameForGlobal:
      return "a node uses its own frame for global memory";
    case Mutant::kAnswerForgotten:
      return "what follows from the policy's answer is not done";
    case Mutant::kNotToThaw:
      return "a page that the policy has put into global memory is never thawed";
    case Mutant::kThawListedTwice:
      return "a page is in the list of pages to thaw twice";
    case Mutant::kThawedStaysListed:
      return "a page that is thawed is said to be in the list still";
    case Mutant::kNotPinned:
      return "a home asks the policy about a page that is pinned";
    case Mutant::kReferenceEndsEarly:
      return "a reference is over before its operation is made";
    case Mutant::kRefersToOwnFrame:
      return "a reference to global memory is made in the node's own frame";
    case Mutant::kSaidRemoteForGood:
      return "the table says of a page that has come back that it is remote";
    case Mutant::kCount:
      break;
  }
  return "?";
}

}  // namespace multigrain::placement::explored
