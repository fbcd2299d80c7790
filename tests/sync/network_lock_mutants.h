// A mutant is a deliberate fault of the network locks. The test of the mutants, and the command `explore`, are built
// from the product's own source with these faults in it (network_lock_mutants.cmake). Where no mutant is chosen, it
// does what the product does.
#pragma once

#include <cstdint>

namespace multigrain::network_lock_explored {

enum class Mutant : uint8_t {
  kNone,
  kTakeWhatIsHeld,      // a node that asks takes a lock that is at the node before it, held or not
  kSleepUnseen,         // a waiter says that it sleeps, and does not look whether the lock came just before
  kNoWake,              // the node that brings the lock does not look whether the waiter sleeps
  kReleaseAfterSend,    // the lock is sent, and then what was written is released
  kNoRelease,           // a lock that is left where it is releases nothing
  kAcquireFromBefore,   // a free lock is acquired from where it lies, whichever node released it
  kForgetWhatCame,      // a lock that came for a try is taken without an acquire
  kForgetRequest,       // a try that joined the queue does not remember it
  kNoPassingOn,         // a lock that came for a try stays there, whichever node waits behind
  kNoBound,             // processors of a node hand the lock on while there are any
  kResetAfterSwap,      // the slot is made ready when the node is in the queue already
  kPlainFree,           // the holder looks for a next node, and then sets the lock free, in two steps
  kLeaveBeforeClear,    // another processor of the node may ask before the slot says that the lock is gone
  kQuietLeave,          // a processor that leaves looks for waiters before, and not after, it has left
  kKeepFrom,            // what came is acquired, and the slot goes on naming where it came from
  kHandOnWhatIsWanted,  // no processor releases a lock that was handed on
  kNoDrain,             // a lock is handed on in the node while what was written waits in a store buffer
  // These are of deferred releases.
  kNoAsking,            // a node that finds a deferred release says nothing
  kNoWaitForAnswer,     // a try that finds a deferred release does not wait for it
  kStayDeferred,        // a lock is taken, and its slot goes on saying that its release was deferred
  kNoLookAfterLeaving,  // a processor that defers its release does not look whether a node has asked
  kLetGoUnreleased,     // a thread lets go of deferred locks without a release
  kReleaseTooEarly,     // it releases before it enters their records
  kForgetOccupied,      // it forgets the locks whose records it cannot enter
  kNoLookAgain,         // it does not look whether nodes have asked meanwhile
  kQuietEnd,            // a processor that lets go unasked does not look whether nodes have asked meanwhile
  kDeferUndrained,      // a release is deferred while what was written waits in a store buffer
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);

// This is the mutant that runs.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::network_lock_explored
