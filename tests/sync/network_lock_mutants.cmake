# The deliberate faults of the network locks (network_lock_mutants.h): writes OUTPUT, which is SOURCE with them.
# driver_mutants.cmake says what mutate() does.
set(PROTOCOL network_lock)
set(file network_lock)
include(${CMAKE_CURRENT_LIST_DIR}/../coherence/driver_mutants.cmake)
file(READ ${SOURCE} source)

mutate([[#include "base/error.h"
]] [[#include "base/error.h"
#include "network_lock_mutants.h"
]])
mutate([[
namespace multigrain {
]] [[
namespace multigrain {
using network_lock_explored::is;
using network_lock_explored::Mutant;
]])

# kTakeWhatIsHeld
mutate([[  if ((theirs & (kHere | kHeld)) == kHere) {]]
       [[  if ((theirs & (kHere | kHeld)) == kHere || (is(Mutant::kTakeWhatIsHeld) && (theirs & kHere) != 0)) {]])
# kSleepUnseen
mutate([[      if (MULTIGRAIN_KEEPS((fabric_.fetch_add(self_, SegmentId::kWords, at, kSleeps) & kHere) == 0))
]] [[      const bool is_here = MULTIGRAIN_KEEPS((fabric_.fetch_add(self_, SegmentId::kWords, at, kSleeps) & kHere) != 0);
      if (is(Mutant::kSleepUnseen)) {
        MULTIGRAIN_WAIT_STEP(record.event);
        MULTIGRAIN_SLEEP_STEP(record.event);
      }
      if (!is_here)
]])
# kNoWake
mutate([[    if ((now & kSleeps) != 0 && to == self_) {]] [[    if (is(Mutant::kNoWake)) now &= ~kSleeps;
    if ((now & kSleeps) != 0 && to == self_) {]])
# kReleaseAfterSend, kNoRelease, kHandOnWhatIsWanted
mutate([[  host_.release();
  record.hand_ons = 0;]] [[  if (!is(Mutant::kReleaseAfterSend) && !(is(Mutant::kNoRelease) && !is_wanted) &&
      !(is(Mutant::kHandOnWhatIsWanted) && record.hand_ons != 0))
    host_.release();
  record.hand_ons = 0;]])
mutate([[    leave(record);
    return Left::kFree;]] [[    leave(record);
    if (is(Mutant::kReleaseAfterSend)) host_.release();
    return Left::kFree;]])
# kReleaseAfterSend, kNoPassingOn
mutate([[  } while ((now & kHeld) == 0 && next_of(now) != 0);]]
       [[  } while ((now & kHeld) == 0 && next_of(now) != 0 && !is(Mutant::kNoPassingOn));
  if (is(Mutant::kReleaseAfterSend)) host_.release();]])
# kAcquireFromBefore
mutate([[host_.acquire(from != 0 ?]] [[host_.acquire(from != 0 && !is(Mutant::kAcquireFromBefore) ?]])
# kForgetWhatCame
mutate([[  record.requested = false;
  go_on_after(self_, at);
  acquire_what_came(at, old);]] [[  record.requested = false;
  go_on_after(self_, at);
  if (!is(Mutant::kForgetWhatCame)) acquire_what_came(at, old);]])
# kForgetRequest
mutate([[    record.requested = true;]] [[    record.requested = !is(Mutant::kForgetRequest);]])
# kNoBound
mutate([[MULTIGRAIN_KEEPS(record.hand_ons < options_.handoff_bound)]]
       [[(is(Mutant::kNoBound) || MULTIGRAIN_KEEPS(record.hand_ons < options_.handoff_bound))]])
# kResetAfterSwap
mutate([[    fabric_.fetch_and_set(self_, SegmentId::kWords, at, kHeld);]]
       [[    if (!is(Mutant::kResetAfterSwap)) fabric_.fetch_and_set(self_, SegmentId::kWords, at, kHeld);]])
mutate([[self_.value + 1u);
  if (tail == 0) {]] [[self_.value + 1u);
  if (is(Mutant::kResetAfterSwap) && !only_try) fabric_.fetch_and_set(self_, SegmentId::kWords, at, kHeld);
  if (tail == 0) {]])
# kPlainFree
mutate([[      (now = fabric_.compare_and_swap(self_, SegmentId::kWords, at, kHere | kHeld, kHere)) == (kHere | kHeld)) {
]] [[      (now = is(Mutant::kPlainFree)
                 ? slot(at)
                 : fabric_.compare_and_swap(self_, SegmentId::kWords, at, kHere | kHeld, kHere)) == (kHere | kHeld)) {
    if (is(Mutant::kPlainFree)) fabric_.fetch_and_set(self_, SegmentId::kWords, at, kHere);
]])
# kLeaveBeforeClear
mutate([[  fabric_.fetch_and_set(self_, SegmentId::kWords, at, 0);
  leave(record);]] [[  if (is(Mutant::kLeaveBeforeClear)) leave(record);
  fabric_.fetch_and_set(self_, SegmentId::kWords, at, 0);
  if (!is(Mutant::kLeaveBeforeClear)) leave(record);]])
# kQuietLeave
mutate([[  bool waited_for = false;]] [[  const bool waited_for_before = is(Mutant::kQuietLeave) && others_wait(record);
  bool waited_for = false;]])
mutate([[  if (!waited_for) return;]] [[  if (is(Mutant::kQuietLeave) ? !waited_for_before : !waited_for) return;]])
# kKeepFrom
mutate([[  add_to_own(at, 0 - (uint64_t{from} << kFromShift));]]
       [[  if (!is(Mutant::kKeepFrom)) add_to_own(at, 0 - (uint64_t{from} << kFromShift));]])
# kNoDrain
mutate([[    host_.drain_store_buffer();]] [[    if (!is(Mutant::kNoDrain)) host_.drain_store_buffer();]])

file(WRITE ${OUTPUT} "${source}")
