// These are deliberate faults of the fabric that DSZOOM's driver runs on, which reorders its operations or leaves some
// out, of compiled checks, and of the driver. The faults of the driver are in the sources that the test of the mutants
// is built from; dszoom_driver_mutants.cmake makes them from the driver's.
#pragma once

#include <cstdint>

#include "coherence/dszoom/states.h"

namespace multigrain::dszoom::explored {

enum class Mutant : uint8_t {
  kNone,
  // These are faults of the fabric.
  kSeesNoHazards,       // all hazards look cleared
  kGetsOvertake,        // a get started behind an operation takes effect before it
  kNoFlags,             // the flag value is not put into the frames of those who lose a line
  kFlagsNotWaitedFor,   // it is, later
  kNoUnlock,            // the entry stays locked
  kLocksWithoutEffect,  // the entry is read, and not locked
  kNothingTaken,        // the word of a holder that is not the home stays as it is
  // These are faults of compiled checks.
  kStoreWithoutHazard,  // they look at the word, and store
  kLookThenPublish,     // they look at the word, and then publish the hazard
  kHazardStaysOpen,     // they do not clear the hazard
  kLooksAtOneLine,      // a batch publishes its hazards, and looks at one line only
  // These are faults of the driver.
  kIgnoresLoadHazards,  // it looks at hazards of stores only, also when it invalidates
  kLooksThenTakes,      // it looks at hazards, and then takes the right
  kReadsThenLooks,      // it reads the line, and then looks at hazards
  kFlagsEarly,          // it flags holders before their hazards are cleared
  kUnlockThenFill,      // the entry is unlocked, and then the frame is filled
  kOwnThenFill,         // the own word says that the line is here, and then the frame is filled
  kNoHazardAtEnd,       // a store miss returns without a hazard
  kIgnoresLock,         // a locked entry is taken for an unlocked one without holders but the home
  kForgetsReader,       // a reader does not enter itself
  kWaitsWithHazard,     // a processor that waits for a lock has a hazard published
  // The faults from here on show only on machines whose checks cache rights. The first are faults of the fabric.
  kSeesNoEpoch,   // rights epochs look as if nothing were cached
  kOneEvenValue,  // of rights epochs that say so, one looks like the other
  // of checks,
  kLookThenCache,     // they look at the lines, and then say that something is cached
  kEpochThenPublish,  // they read the node's rights epoch, and then publish the hazard
  kCachesAllOfPage,   // they look at one line of the page, and cache all
  // and of the driver.
  kReplacesAlone,    // it replaces the rights epoch, and does not look at hazards again
  kTrustsOdd,        // an odd rights epoch is as good as the even one that it was, whenever the requester has seen that
  kKnowsLate,        // the rights epoch is compared with what is known when the scan is over, not when it began
  kFirstLookInVain,  // hazards that were looked at in vain are the first look
  kReplacesThenTakes,  // it replaces the rights epoch, and then takes the right
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);
// Returns whether the fault shows only on machines whose checks cache rights.
constexpr bool needs_cache(Mutant mutant) {
  return mutant >= Mutant::kSeesNoEpoch;
}

// The one that is tried.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

// The operations of a step of a miss, as the mutant has them.
[[nodiscard]] Step mutated(const Step& step);

}  // namespace multigrain::dszoom::explored
