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
mutate([[  const auto hold_blocks = hold(lock_);
  if (due_count_.load(std::memory_order_relaxed) != 0) serve_due();
  transition(at, &message]] [[  if (is(Mutant::kTouchedBeforeLock)) MULTIGRAIN_STEP(&pages_[page_of(at.first)].touched);
  const bool is_touched = pages_[page_of(at.first)].touched.load();
  const auto hold_blocks = hold(lock_);
  struct Found {
    const void* shell;
    Found(const void* of, bool value) : shell(of) { if (is(Mutant::kTouchedBeforeLock)) found_touched[of] = value; }
    ~Found() { found_touched.erase(shell); }
  } const found(this, is_touched);
  if (due_count_.load(std::memory_order_relaxed) != 0) serve_due();
  transition(at, &message]])
mutate([[      touched.load(std::memory_order_acquire) ? bits_of]]
       [[      (found_touched.count(this) != 0 ? found_touched[this] : touched.load()) ? bits_of]])

# kPublishesWithoutLock, kPageLockHeld
mutate([[  // What nobody has taken is the home's. Compiled checks need to see that.
  const auto hold_blocks = hold(lock_);
]] [[  std::unique_lock<SpinLock> hold_page;
  if (is(Mutant::kPageLockHeld)) hold_page = hold(record.lock);
  std::unique_lock<SpinLock> hold_blocks;
  if (!is(Mutant::kPublishesWithoutLock)) hold_blocks = hold(lock_);
]])

# kClaimAlwaysWins
mutate([[    home = services_.homes.claim_home(page);
]] [[    home = services_.homes.claim_home(page);
    if (is(Mutant::kClaimAlwaysWins)) home = self_;
]])

# kTouchedBeforeFlags
mutate([[  // Nobody else writes to this frame before this node has asked for a block, for which the page must be touched.
  if (home != self_) fill]] [[  if (is(Mutant::kTouchedBeforeFlags)) {
    services_.rights.grant_write(page, 1);
    record.home_plus_one.store(static_cast<uint16_t>(home.value + 1), std::memory_order_relaxed);
    MULTIGRAIN_STEP(&record.touched);
    record.touched.store(true, std::memory_order_release);
  }
  if (home != self_) fill]])

# kWindowsBeforeWords, kFirstWordOnly
mutate([[  for (uint64_t line = at.first; line < at.first + at.lines; ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  // Either]] [[  if (is(Mutant::kWindowsBeforeWords)) wait_for_windows(at, to == Right::kNone);
  for (uint64_t line = at.first; line < at.first + (is(Mutant::kFirstWordOnly) ? 1 : at.lines); ++line) {
    MULTIGRAIN_STEP(&word(line));
    word(line).store(rights, std::memory_order_relaxed);
  }
  if (is(Mutant::kWindowsBeforeWords)) return;
  // Either]])

# kDoesNotWaitForWindows, kLoadsNotWaitedFor, kDoesNotForget, kForgetsLate
mutate([[  lines_.places.forget();
  wait_for_windows(at, to == Right::kNone);]] [[  if (!is(Mutant::kDoesNotForget) && !is(Mutant::kForgetsLate)) lines_.places.forget();
  if (is(Mutant::kDoesNotWaitForWindows)) return;
  wait_for_windows(at, to == Right::kNone && !is(Mutant::kLoadsNotWaitedFor));
  if (is(Mutant::kForgetsLate)) MULTIGRAIN_STEP(&lines_.places.losses());
  if (is(Mutant::kForgetsLate)) lines_.places.forget();]])

# kNoFlags
mutate([[    case Verb::kFlag:
]] [[    case Verb::kFlag:
      if (is(Mutant::kNoFlags)) return;
]])

# kRecordRemovedEarly
mutate([[  if (!block.is_at_rest()) {
    if (record == nullptr)]] [[  if (is(Mutant::kRecordRemovedEarly) ? block.pending != Pending::kNone : !block.is_at_rest()) {
    if (record == nullptr)]])

# kNobodyIsWoken
mutate([[        if (seats_[i].looking) wake(seats_[i]);
]] [[        if (seats_[i].looking && !is(Mutant::kNobodyIsWoken)) wake(seats_[i]);
]])

# kLooksLate
mutate([[  seat.looking = looking;
  {]] [[  if (is(Mutant::kLooksLate)) {
    hold.unlock();
    MULTIGRAIN_STEP(&due_count_);
    MULTIGRAIN_LOCK_STEP(lock_);
    hold.lock();
  }
  seat.looking = looking;
  {]])

# kOpensWithoutLock
mutate([[    MG_CHECK(word(line).load(std::memory_order_relaxed) == kExclusive, line);
    shasta::publish(store_window(line));
    if (outcome]] [[    if (!is(Mutant::kOpensWithoutLock)) shasta::publish(store_window(line));
    if (outcome]])
mutate([[  // With the window open this thread]] [[  if (is(Mutant::kOpensWithoutLock)) shasta::publish(store_window(line));
  // With the window open this thread]])

# kOutstandingLate
mutate([[now > outstanding_.load(std::memory_order_relaxed)) tell]]
       [[now > outstanding_.load(std::memory_order_relaxed) && !is(Mutant::kOutstandingLate)) tell]])

file(WRITE ${OUTPUT} "${source}")
