# Makes the source of Shasta's shell with deliberate faults in it (shasta_shell_mutants.h):
#   cmake -DSHELL=.../shell.cpp -DOUTPUT=FILE -P shasta_shell_mutants.cmake
# Each stands where the shell does the right thing. Where the shell is changed, this may have to be: a place that is not
# found once is an error.
file(READ ${SHELL} source)

function(mutate ORIGINAL MUTATED)
  string(FIND "${source}" "${ORIGINAL}" first)
  string(FIND "${source}" "${ORIGINAL}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${CMAKE_CURRENT_LIST_FILE}: this is not, or more than once, in ${SHELL}:\n${ORIGINAL}")
  endif()
  string(REPLACE "${ORIGINAL}" "${MUTATED}" changed "${source}")
  set(source "${changed}" PARENT_SCOPE)
endfunction()

mutate([[#include "coherence/shasta/shell.h"
]] [[#include "coherence/shasta/shell.h"
#include <map>
#include "shasta_shell_mutants.h"
]])
mutate([[namespace multigrain::shasta {
namespace {
]] [[namespace multigrain::shasta {
namespace {
using explored::Mutant;
using explored::is;
// What the handler that has the lock of a shell has found before.
std::map<const void*, bool> found_touched;
]])

# kTouchedBeforeLock
mutate([[  bool wakes = false;
  {
    const auto hold_blocks = hold(lock_);
    if (deferred_count_.load(std::memory_order_relaxed) != 0) retry_deferred();
    if (deferred]] [[  bool wakes = false;
  if (is(Mutant::kTouchedBeforeLock)) MULTIGRAIN_STEP(&pages_[page_of(at.first)].touched);
  const bool is_touched = pages_[page_of(at.first)].touched.load();
  {
  const auto hold_blocks = hold(lock_);
  struct Found {
    const void* shell;
    Found(const void* of, bool value) : shell(of) { if (is(Mutant::kTouchedBeforeLock)) found_touched[of] = value; }
    ~Found() { found_touched.erase(shell); }
  } const found(this, is_touched);
  if (deferred_count_.load(std::memory_order_relaxed) != 0) retry_deferred();
  if (is(Mutant::kOvertakesDeferred) && carry_out(at, &arrival)) {
  } else if (deferred]])
mutate([[      touched.load(std::memory_order_acquire) ? bits_of]]
       [[      (found_touched.count(this) != 0 ? found_touched[this] : touched.load()) ? bits_of]])

# kPublishesWithoutLock
mutate([[  // The home has every block that no other node has asked for. Compiled checks need to see that.
  const auto hold_blocks = hold(lock_);
]] [[  std::unique_lock<SpinLock> hold_blocks;
  if (!is(Mutant::kPublishesWithoutLock)) hold_blocks = hold(lock_);
]])

# kClaimAlwaysWins
mutate([[    home = services_.homes.claim_home(page);
]] [[    home = services_.homes.claim_home(page);
    if (is(Mutant::kClaimAlwaysWins)) home = self_;
]])

# kTouchedBeforeFlags
mutate([[  // No other thread writes to this frame before this node has asked for a block, for which the page must be touched.
  if (home != self_) fill]] [[  if (is(Mutant::kTouchedBeforeFlags)) {
    services_.rights.grant_write(page, 1);
    record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_relaxed);
    MULTIGRAIN_STEP(&record.touched);
    record.touched.store(true, std::memory_order_release);
  }
  if (home != self_) fill]])

# kHazardsBeforeWords, kFirstWordOnly
mutate([[  for (uint64_t line = at.first; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  // Either]] [[  const bool cleared = !is(Mutant::kHazardsBeforeWords) || have_cleared(at, rights == 0, then);
  for (uint64_t line = at.first; line < at.first + (is(Mutant::kFirstWordOnly) ? 1 : at.lines); ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  if (is(Mutant::kHazardsBeforeWords)) return cleared;
  // Either]])

# kDoesNotWaitForHazards, kLoadsNotWaitedFor, kDoesNotForget, kForgetsLate
mutate([[  lines_.hazards.invalidate_rights_cache();
  return have_cleared(at, rights == 0, then);]] [[  if (!is(Mutant::kDoesNotForget) && !is(Mutant::kForgetsLate)) lines_.hazards.invalidate_rights_cache();
  if (is(Mutant::kDoesNotWaitForHazards)) return true;
  const bool have = have_cleared(at, rights == 0 && !is(Mutant::kLoadsNotWaitedFor), then);
  if (is(Mutant::kForgetsLate)) MULTIGRAIN_STEP(&lines_.hazards.rights_epoch());
  if (is(Mutant::kForgetsLate)) lines_.hazards.invalidate_rights_cache();
  return have;]])

# kWaitsInHandler
mutate([[    if (then == UnderHazards::kDefers) awaited_]] [[    if (is(Mutant::kWaitsInHandler)) {
      MULTIGRAIN_CHANGE_STEP(seen.word, seen.hazard);
      return;
    }
    if (then == UnderHazards::kDefers) awaited_]])

# kDoesNotAwait
mutate([[    if (!awaited_have_cleared()) return;
]] [[    if (is(Mutant::kDoesNotAwait)) awaited_count_ = 0;
    if (!awaited_have_cleared()) return;
]])

# kDoesNotUndo
mutate([[  block = undo_.block;
]] [[  if (!is(Mutant::kDoesNotUndo)) block = undo_.block;
]])

# kRaisesFrozen
mutate([[    while (shell_.is_frozen(at)) wait(true);
]] [[    while (shell_.is_frozen(at) && !is(Mutant::kRaisesFrozen)) wait(true);
]])

# kRetryIsLost
mutate([[  return number == 0;
]] [[  return number == 0 && !is(Mutant::kRetryIsLost);
]])

# kRestIsForgotten
mutate([[      if (record == nullptr) add_record(at.first, block);
    }
    return]] [[      if (record == nullptr && !is(Mutant::kRestIsForgotten)) add_record(at.first, block);
    }
    return]])

# kNoFlags
mutate([[    case Verb::kWriteFlags:
]] [[    case Verb::kWriteFlags:
      if (is(Mutant::kNoFlags)) return;
]])

# kRecordRemovedEarly
mutate([[  if (!block.is_at_rest()) {
    if (record == nullptr)]] [[  if (is(Mutant::kRecordRemovedEarly) ? block.pending != Pending::kNone : !block.is_at_rest()) {
    if (record == nullptr)]])

# kNobodyIsWoken
mutate([[    if (slots_[i].wakes_on_any) wake(slots_[i]);
]] [[    if (slots_[i].wakes_on_any && !is(Mutant::kNobodyIsWoken)) wake(slots_[i]);
]])

# kLooksLate
mutate([[  slot.wakes_on_any = wakes_on_any;
  {]] [[  if (is(Mutant::kLooksLate)) {
    hold.unlock();
    MULTIGRAIN_STEP(&deferred_count_);
    MULTIGRAIN_LOCK_STEP(lock_);
    hold.lock();
  }
  slot.wakes_on_any = wakes_on_any;
  {]])

# kOpensWithoutLock
mutate([[    MG_CHECK(word(line).load(std::memory_order_relaxed) == kExclusive, line);
    shasta::publish(store_hazard(line));
    if (*outcome]] [[    if (!is(Mutant::kOpensWithoutLock)) shasta::publish(store_hazard(line));
    if (*outcome]])
mutate([[        remove_record(at->first);
      }
    }
  }
  if (wakes)]] [[        remove_record(at->first);
      }
    }
  }
  if (is(Mutant::kOpensWithoutLock)) shasta::publish(store_hazard(line));
  if (wakes)]])

# kOutstandingLate
mutate([[now > outstanding_.load(std::memory_order_relaxed))
]]     [[now > outstanding_.load(std::memory_order_relaxed) && !is(Mutant::kOutstandingLate))
]])

file(WRITE ${OUTPUT} "${source}")
