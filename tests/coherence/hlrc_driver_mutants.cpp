#include "hlrc_driver_mutants.h"

namespace multigrain::hlrc::explored {

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kNoFetchLog:
      return "entries of fetch logs get lost";
    case Mutant::kFetchBeforeLog:
      return "read a page, and then write its home's fetch log";
    case Mutant::kDepositsNotWaited:
      return "diffs come to the homes after the wait for them";
    case Mutant::kLateProtection:
      return "the right to write goes some time after it was taken";
    case Mutant::kNotInvalidated:
      return "pages that notices name keep their rights";
    case Mutant::kNoTimestamp:
      return "raise no timestamp";
    case Mutant::kOnlyReleaser:
      return "apply the releaser's own notices only";
    case Mutant::kReorderFetchLog:
      return "entries of a node's fetch log come in any order";
    case Mutant::kPublishBeforeDeposit:
      return "publish notices before diffs are deposited";
    case Mutant::kIgnoreFetchLog:
      return "read the fetch log only when something was written";
    case Mutant::kGrantBeforeQueue:
      return "make a page writable before it is listed";
    case Mutant::kDiffBeforeRevoke:
      return "make the diff before the right to write is gone";
    case Mutant::kForgetEarlyDeposit:
      return "forget the notice of an early deposit";
    case Mutant::kIgnoreLap:
      return "go on without the notices that were overwritten";
    case Mutant::kKnownBeforeInvalid:
      return "raise the timestamp before pages are invalid";
    case Mutant::kIgnoreOtherReleases:
      return "ignore releases that other processors have in progress";
    case Mutant::kNoTwin:
      return "deposit a written page whole";
    case Mutant::kNoDepositAtNotice:
      return "drop a dirty page that a notice names";
    case Mutant::kKeepPrefetched:
      return "keep a frame that was fetched ahead through a notice";
    case Mutant::kLogOnce:
      return "log the first fetch of a page only";
    case Mutant::kIgnoreOverflow:
      return "ignore that entries of the fetch log are lost";
    case Mutant::kKeepUnshared:
      return "forget fetches of pages that the home may not write";
    case Mutant::kNoticesBeforeMoves:
      return "apply notices, and then move homes";
    case Mutant::kMovedUnshared:
      return "count a page that has moved as private";
    case Mutant::kMoveContested:
      return "move a page to one of two writers";
    case Mutant::kOnePlace:
      return "publish what was written always in the same place";
    case Mutant::kOldHomeWrites:
      return "leave an old home the right to write";
    case Mutant::kMoveByKnowledge:
      return "count episodes by where a node knows the home to be";
    case Mutant::kCatchUpAtBarrier:
      return "catch up between arriving at a barrier and leaving it";
    case Mutant::kGatherEarly:
      return "gather before the children have";
    case Mutant::kLearnEarly:
      return "learn before the parent has";
    case Mutant::kOneBlock:
      return "gather and learn in the same place";
    case Mutant::kForgetChild:
      return "gather all children's notices but those of the last";
    case Mutant::kSeveralAsOne:
      return "count gathered pages that several nodes have written as one's";
    case Mutant::kSkipSeveral:
      return "skip gathered notices of pages that several nodes have written";
    case Mutant::kAsIfAll:
      return "leave out gathered notices that do not fit";
    case Mutant::kNewsOfOwnEpisode:
      return "skip gathered notices of a node of which some are known";
    case Mutant::kLinesBeforeHomes:
      return "move pages to lines before homes move";
    case Mutant::kLinesKeepRights:
      return "keep the rights to a page that moves to lines";
    case Mutant::kLinesOfOwnWish:
      return "move only what the node itself wants to lines";
    case Mutant::kLinesTwice:
      return "move a page to lines a second time";
    case Mutant::kKeepUnlisted:
      return "leave a page that stays writable out of the next interval";
    case Mutant::kKeepTwin:
      return "leave the twin of a page that stays writable as it was";
    case Mutant::kMergeWhole:
      return "fill a page that is written with the whole home copy";
    case Mutant::kMergeFrameOnly:
      return "update a page that is written, and not its twin";
    case Mutant::kUpdateUnlogged:
      return "update a page in use without an entry in the fetch log";
    case Mutant::kForgetRest:
      return "change a page that does not join a run of pages";
    case Mutant::kCount:
      break;
  }
  return "?";
}

const char* shows_on(Mutant mutant) {
  switch (mutant) {
    case Mutant::kFetchBeforeLog:
    case Mutant::kNoTwin:
      return "two locks in one page";
    case Mutant::kLateProtection:
      return "false sharing of a page with its home";
    case Mutant::kReorderFetchLog:
      return "pages fetched ahead by two processors of a node, while the home writes";
    case Mutant::kOnlyReleaser:
      return "a node between that touches nothing";
    case Mutant::kPublishBeforeDeposit:
      return "two processors of a node write, a third node reads";
    case Mutant::kGrantBeforeQueue:
    case Mutant::kDiffBeforeRevoke:
    case Mutant::kIgnoreOtherReleases:
    case Mutant::kNoDepositAtNotice:
      return "two processors of a node write a page";
    case Mutant::kForgetEarlyDeposit:
      return "a dirty page is named, by a reader beside";
    case Mutant::kIgnoreLap:
      return "a reader comes too late for the log";
    case Mutant::kKnownBeforeInvalid:
    case Mutant::kKeepUnshared:
      return "two processors of a node acquire at once";
    case Mutant::kKeepPrefetched:
      return "a page is fetched ahead";
    case Mutant::kLogOnce:
      return "a page is fetched again and again";
    case Mutant::kIgnoreOverflow:
      return "a home comes too late for its fetch log";
    case Mutant::kNoticesBeforeMoves:
      return "a home moves, and its new home writes before the old one has left";
    case Mutant::kMovedUnshared:
      return "a home moves from which another has fetched";
    case Mutant::kMoveContested:
      return "a page that two nodes write does not move";
    case Mutant::kOnePlace:
      return "homes move there and back";
    case Mutant::kOldHomeWrites:
      return "a home moves that its old home may write";
    case Mutant::kMoveByKnowledge:
      return "a home moves of which a node has never heard";
    case Mutant::kCatchUpAtBarrier:
      return "a node catches up between its arrival at a barrier and its leaving";
    case Mutant::kGatherEarly:
    case Mutant::kLearnEarly:
    case Mutant::kForgetChild:
      return "notices are gathered along a chain";
    case Mutant::kOneBlock:
      return "notices are gathered along another tree each time";
    case Mutant::kSeveralAsOne:
    case Mutant::kSkipSeveral:
      return "false sharing, and notices are gathered";
    case Mutant::kAsIfAll:
      return "more notices than there is room for are gathered";
    case Mutant::kNewsOfOwnEpisode:
      return "notices are gathered of which some are known";
    case Mutant::kLinesBeforeHomes:
      return "a page moves to lines at the barrier at which its home moves";
    case Mutant::kLinesKeepRights:
      return "a page moves to lines that its home goes on writing";
    case Mutant::kLinesTwice:
      return "two nodes want a page to move to lines at different barriers";
    case Mutant::kLinesOfOwnWish:
      return "a page moves to lines that another node reads again and again";
    case Mutant::kKeepUnlisted:
    case Mutant::kMergeWhole:
      return "an interval ends, and another processor writes a page in use";
    case Mutant::kKeepTwin:
      return "two nodes write a page in use, each under its lock";
    case Mutant::kMergeFrameOnly:
      return "a page in use is updated between two writes of another node";
    case Mutant::kUpdateUnlogged:
      return "a page in use is read again and again";
    case Mutant::kForgetRest:
      return "pages are written together, and one of them is invalid";
    default:
      return "a lock chain over three nodes";
  }
}

std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (auto m = static_cast<int>(Mutant::kNone) + 1; m != static_cast<int>(Mutant::kCount); ++m)
    all.push_back(static_cast<Mutant>(m));
  return all;
}

}  // namespace multigrain::hlrc::explored
