// Deliberate faults of Shasta's shell. The source of the shell that the test of the mutants is built from is the shell's
// own with these in it: shasta_shell_mutants.cmake makes it.
#pragma once

#include <cstdint>

namespace multigrain::shasta::explored {

enum class Mutant : uint8_t {
  kNone,
  kTouchedBeforeLock,       // a handler looks whether the page is touched, and then takes the lock
  kPublishesWithoutLock,    // a first touch publishes rights without the lock
  kPageLockHeld,            // a first touch waits for the lock with the page's lock held
  kClaimAlwaysWins,         // whoever claims a page takes itself for the home
  kTouchedBeforeFlags,      // a page counts as touched, and then its frame is filled with flags
  kDoesNotWaitForWindows,   // rights are lowered under open windows
  kLoadsNotWaitedFor,       // windows of loads are not waited for where all rights are taken
  kWindowsBeforeWords,      // windows are waited for, and then words are changed
  kDoesNotForget,           // what the node remembers of a line is not voided
  kForgetsLate,             // windows are waited for, and then what is remembered is voided
  kFirstWordOnly,           // of a block of several lines the first one's word alone is lowered
  kNoFlags,                 // an invalid frame keeps its data
  kRecordRemovedEarly,      // a block's record is removed when no request is out, whatever else waits
  kNobodyIsWoken,           // kWake has no effect
  kLooksLate,               // a thread that waits lets go of the lock, and then says that it waits
  kOpensWithoutLock,        // a granted window is opened when the lock has been let go of
  kOutstandingLate,         // fences learn of a store when it has been made
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);

// The one that is tried.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::shasta::explored
