# The deliberate faults of the network locks (network_lock_mutants.h): writes OUTPUT, which is SOURCE with them.
# driver_mutants.cmake says what mutate() does.
set(PROTOCOL network_lock)
get_filename_component(file ${SOURCE} NAME_WE)
include(${CMAKE_CURRENT_LIST_DIR}/../coherence/driver_mutants.cmake)
file(READ ${SOURCE} source)

string(REGEX MATCH "#include \"base/[a-z_]+\\.h\"\n" own "${source}")
mutate("${own}" "${own}#include \"network_lock_mutants.h\"\n")
mutate([[
namespace multigrain {
]] [[
namespace multigrain {
using network_lock_explored::is;
using network_lock_explored::Mutant;
]])

if(file STREQUAL network_lock)

# kTakeWhatIsHeld
mutate([[  if ((theirs & (kHere | kHeld)) == kHere) {]]
       [[  if ((theirs & (kHere | kHeld)) == kHere || (is(Mutant::kTakeWhatIsHeld) && (theirs & kHere) != 0)) {]])
# kSleepUnseen
mutate([[      if (MULTIGRAIN_KEEPS((own_.add(at, kSleeps) & kHere) == 0))
]] [[      const bool is_here = MULTIGRAIN_KEEPS((own_.add(at, kSleeps) & kHere) != 0);
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
mutate([[    MULTIGRAIN_KNOWS();
    if (owes) host_.release();
]] [[    const bool is_wanted_now = next_of(slot(at)) != 0;
    MULTIGRAIN_KNOWS(is_wanted_now);
    if (!is(Mutant::kReleaseAfterSend) && !(is(Mutant::kNoRelease) && !is_wanted_now) &&
        !(is(Mutant::kHandOnWhatIsWanted) && record.hand_ons != 0) && owes)
      host_.release();
]])
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
mutate([[    record.history.taken_here();
  go_on_after(self_, at);
  acquire_what_came(at, old);]] [[    record.history.taken_here();
  go_on_after(self_, at);
  if (!is(Mutant::kForgetWhatCame)) acquire_what_came(at, old);]])
# kForgetRequest
mutate([[    record.requested = true;]] [[    record.requested = !is(Mutant::kForgetRequest);]])
# kNoBound
mutate([[MULTIGRAIN_KEEPS(record.hand_ons < options_.handoff_bound)]]
       [[(is(Mutant::kNoBound) || MULTIGRAIN_KEEPS(record.hand_ons < options_.handoff_bound))]])
# kResetAfterSwap
mutate([[    own_.exchange(at, kHeld);]]
       [[    if (!is(Mutant::kResetAfterSwap)) own_.exchange(at, kHeld);]])
mutate([[self_.value + 1u);
  if (tail == 0) {]] [[self_.value + 1u);
  if (is(Mutant::kResetAfterSwap) && !only_try) own_.exchange(at, kHeld);
  if (tail == 0) {]])
# kPlainFree
mutate([[  const uint64_t now = own_.compare_and_swap(at, held, kHere);
  if (now == held) {
]] [[  const uint64_t now = is(Mutant::kPlainFree)
                           ? slot(at)
                           : own_.compare_and_swap(at, held, kHere);
  if (now == held) {
    if (is(Mutant::kPlainFree)) own_.exchange(at, kHere);
]])
# kLeaveBeforeClear
mutate([[  own_.exchange(at, 0);
  leave(record);]] [[  if (is(Mutant::kLeaveBeforeClear)) leave(record);
  own_.exchange(at, 0);
  if (!is(Mutant::kLeaveBeforeClear)) leave(record);]])
# kQuietLeave
mutate([[  bool waited_for = false;]] [[  const bool waited_for_before = is(Mutant::kQuietLeave) && others_wait(record);
  bool waited_for = false;]])
mutate([[  if (!waited_for) return;]] [[  if (is(Mutant::kQuietLeave) ? !waited_for_before : !waited_for) return;]])
# kKeepFrom
mutate([[  own_.add(at, 0 - (uint64_t{from} << kFromShift));]]
       [[  if (!is(Mutant::kKeepFrom)) own_.add(at, 0 - (uint64_t{from} << kFromShift));]])
# kNoDrain
mutate([[    host_.drain_store_buffer();]] [[    if (!is(Mutant::kNoDrain)) host_.drain_store_buffer();]])


# kNoAsking
mutate([[  const bool is_let_go_on_request = is_deferred(theirs);]]
       [[  const bool is_let_go_on_request = is_deferred(theirs) && !is(Mutant::kNoAsking);]])
# kNoWaitForAnswer
mutate([[    if (!is_let_go_on_request || !await_answer(number, before)) return Taken::kNot;]]
       [[    if (!is_let_go_on_request || is(Mutant::kNoWaitForAnswer) || !await_answer(number, before)) return Taken::kNot;]])
# kStayDeferred
mutate([[    own_.add(at, 0 - kDeferred);]] [[    if (!is(Mutant::kStayDeferred)) own_.add(at, 0 - kDeferred);]])
elseif(file STREQUAL deferred_release)

# kNoLookAfterLeaving
mutate([[  if (MULTIGRAIN_KEEPS(next_of(slot(at)) != 0)) {]]
       [[  if (MULTIGRAIN_KEEPS(next_of(slot(at)) != 0) && !is(Mutant::kNoLookAfterLeaving)) {]])
# kLetGoUnreleased, kReleaseTooEarly
mutate([[  uint32_t listed = MULTIGRAIN_KEEPS(take_list());
]] [[  if (is(Mutant::kReleaseTooEarly)) host_.release();
  uint32_t listed = MULTIGRAIN_KEEPS(take_list());
]])
mutate([[  host_.release();
  while (entered != 0) {]] [[  if (!is(Mutant::kLetGoUnreleased) && !is(Mutant::kReleaseTooEarly)) host_.release();
  while (entered != 0) {]])
# kForgetOccupied
mutate([[      list(record, number);
    } else if]] [[      if (!is(Mutant::kForgetOccupied)) list(record, number);
    } else if]])
# kNoLookAgain
mutate([[    letting_go_.unlock();
    MULTIGRAIN_KNOWS();
]] [[    letting_go_.unlock();
    if (is(Mutant::kNoLookAgain)) return;
    MULTIGRAIN_KNOWS();
]])
# kQuietEnd
mutate([[  // Another thread that wanted to let go meanwhile has found `letting_go_` taken, and does not wait.
]] [[  // Another thread that wanted to let go meanwhile has found `letting_go_` taken, and does not wait.
  if (is(Mutant::kQuietEnd)) return;
]])
# kDeferUndrained
mutate([[  host_.release_own_part();
]] [[  if (!is(Mutant::kDeferUndrained)) host_.release_own_part();
]])
endif()

file(WRITE ${OUTPUT} "${source}")
