# The deliberate faults of the engine of futexes (futex_model.h): writes OUTPUT, which is the engine SOURCE with them.
# driver_mutants.cmake says what mutate() does.
set(PROTOCOL futex)
set(file engine)
include(${CMAKE_CURRENT_LIST_DIR}/../coherence/driver_mutants.cmake)
file(READ ${SOURCE} source)

mutate([[#include "base/error.h"
]] [[#include "base/error.h"
#include "futex_model.h"
]])
mutate([[
namespace multigrain {
namespace {
]] [[
namespace multigrain {
using futex_model::is;
using futex_model::Mutant;
namespace {
]])

# kPassesOverTentative, kTakesTentative
mutate([[    if (entry(at).state == State::kTentative) return false;
    ++found]] [[    if (is(Mutant::kPassesOverTentative) || is(Mutant::kTakesTentative)) return true;
    if (entry(at).state == State::kTentative) return false;
    ++found]])
mutate([[    const WaiterId next = entry(at).next;
    if (is_meant(entry(at), what)) {]] [[    const WaiterId next = entry(at).next;
    if (is_meant(entry(at), what) &&
        !(is(Mutant::kPassesOverTentative) && entry(at).state == State::kTentative)) {]])

# kQueuesUnderOperations
mutate([[  const bool is_free = bucket_of]] [[  const bool is_free = is(Mutant::kQueuesUnderOperations) && who.request.call == FutexCall::kEnqueue ? true : bucket_of]])

# kGoesOnOutOfOrder
mutate([[    const bool is_next = bucket]] [[    const bool is_next = is(Mutant::kGoesOnOutOfOrder) ? true : bucket]])

# kHoldsTentative
mutate([[  if (request.call == FutexCall::kEnqueue) return true;
]] [[  if (request.call == FutexCall::kEnqueue) return true;
  if (is(Mutant::kHoldsTentative) && request.call == FutexCall::kHold) return true;
]])

# kCancelIsQuiet, kConfirmIsQuiet, kHolderIsQuiet
mutate([[      dequeue(caller);
      go_on(bucket, answers);]] [[      dequeue(caller);
      if (!is(Mutant::kCancelIsQuiet)) go_on(bucket, answers);]])
mutate([[      go_on(bucket_of(who.request.key), answers);]]
       [[      if (!is(Mutant::kConfirmIsQuiet)) go_on(bucket_of(who.request.key), answers);]])
mutate([[      go_on(bucket.pending]] [[      if (!is(Mutant::kHolderIsQuiet)) go_on(bucket.pending]])

# kOneGoesOn
mutate([[        finish(at, answers);
      }]] [[        finish(at, answers);
        if (is(Mutant::kOneGoesOn)) return;
      }]])

# kLeftTwice
mutate([[      if (who.state == State::kIdle) return;]] [[      if (who.state == State::kIdle) {
        if (is(Mutant::kLeftTwice)) answers(caller, FutexAnswer::kLeft);
        return;
      }]])

# kForgetsSecondBucket
mutate([[  if (has_second_key(request.call)) ++]] [[  if (has_second_key(request.call) && !is(Mutant::kForgetsSecondBucket)) ++]])
mutate([[  if (has_second_key(request.call)) --]] [[  if (has_second_key(request.call) && !is(Mutant::kForgetsSecondBucket)) --]])

file(WRITE ${OUTPUT} "${source}")
