// Deliberate faults of HLRC's driver and of the ports that it stands on, each of which the exploration must refute:
// without them nobody would know that the checks can fail. Those of the driver are put into its sources by
// hlrc_driver_mutants.cmake; those of the ports are in hlrc_driver_world.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "coherence/hlrc/states.h"

namespace multigrain::hlrc::explored {

enum class Mutant : uint8_t {
  kNone,
  // Of the ports.
  kNoFetchLog,         // entries of fetch logs get lost
  kFetchBeforeLog,     // a page is read, and then its home's fetch log is written
  kDepositsNotWaited,  // diffs come to the homes some time after the wait for them
  kLateProtection,     // processors may write for some time after the right to write is gone
  kNotInvalidated,     // pages that notices name keep their rights
  kNoTimestamp,        // no timestamp is raised
  kOnlyReleaser,       // the releaser's timestamp says nothing of other nodes
  kReorderFetchLog,    // entries that two processors of a node append to a fetch log come in any order
  // Of the driver.
  kPublishBeforeDeposit,  // a release publishes its notices first, and deposits its diffs afterwards
  kIgnoreFetchLog,        // a release with nothing written does not read the fetch log
  kGrantBeforeQueue,      // a page is made writable, and then joins the list
  kDiffBeforeRevoke,      // the diff is made while processors of the node may still write
  kForgetEarlyDeposit,    // what went home at a notice is not noticed by others
  kIgnoreLap,             // an acquire takes in what is left of notices that were overwritten, and no more
  kKnownBeforeInvalid,    // the timestamp is raised, and then the pages are invalidated
  kIgnoreOtherReleases,   // a release waits for no other processor's of its node
  kNoTwin,                // a written page goes home whole
  kNoDepositAtNotice,     // a dirty page that a notice names is dropped
  kKeepPrefetched,        // a notice leaves a frame that was fetched ahead
  kLogOnce,               // only the first fetch of a page leaves an entry in the fetch log
  kIgnoreOverflow,        // a home whose fetch log was overwritten goes on as if it had come to its end
  kKeepUnshared,          // a home reads its fetch log, and forgets pages that it may not write
  // Of homes that move.
  kNoticesBeforeMoves,  // notices are taken in, and then homes move
  kMovedUnshared,       // a new home counts a page that has moved as its own alone
  kMoveContested,       // pages move to one of two nodes that have written them
  kOnePlace,            // what the nodes have written is always in the same place
  kOldHomeWrites,       // an old home goes on writing in place
  kMoveByKnowledge,     // a node that knows that a page is at home at its writer does not count the episode
  kCatchUpAtBarrier,    // a node catches up while it is at a barrier
  // Of notices that are gathered along a barrier's tree.
  kGatherEarly,       // a node gathers before its children have (of the ports)
  kLearnEarly,        // a node learns before its parent has (of the ports)
  kOneBlock,          // what a node gathers and what it learns are in the same place
  kForgetChild,       // a node puts what its last child has gathered nowhere
  kSeveralAsOne,      // pages that several nodes have written count as written by one of them
  kSkipSeveral,       // a node takes in only notices of pages that one node alone has written
  kAsIfAll,           // what does not fit is left out, and nobody hears of it
  kNewsOfOwnEpisode,  // a node that knows of some of another's notices takes in no other ones of it
  // Of pages that move to lines.
  kLinesBeforeHomes,  // pages move to lines, and then homes move
  kLinesKeepRights,   // a node keeps its rights to a page that moves to lines
  kLinesOfOwnWish,    // only the pages move that the node itself wants to move
  kLinesTwice,        // a page that has moved moves again when another node wants it
  // Of pages in use, and of runs of pages.
  kKeepUnlisted,    // a page that stays writable does not join the next interval
  kKeepTwin,        // the twin of a page that stays writable stays what it was
  kMergeWhole,      // a page that is written gets the whole home copy
  kMergeFrameOnly,  // a page that is written gets what has changed, and its twin does not
  kUpdateUnlogged,  // the home does not learn that a page in use was fetched
  kForgetRest,      // a page that does not join a run of pages counts as having joined it
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);
[[nodiscard]] std::vector<Mutant> mutants();
// The machine on which it shows.
[[nodiscard]] const char* shows_on(Mutant mutant);

// The one that is tried.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::hlrc::explored
