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
  kNoFlags,             // the flag value is not put into the frames of nodes that lose a line
  kFlagsNotWaitedFor,   // the flag value is put there later than the driver waits for
  kNoUnlock,            // the entry stays locked
  kLocksWithoutEffect,  // the entry is read, and not locked
  kNothingTaken,        // the word of a holder that is not the home stays as it is
  // These are faults of compiled checks.
  kStoreWithoutHazard,  // a check looks at the word, and the store follows without a hazard
  kLookThenPublish,     // a check looks at the word, and then publishes the hazard
  kHazardStaysOpen,     // a check does not clear the hazard
  kLooksAtOneLine,      // a batch publishes its hazards, and looks at one line only
  // These are faults of the driver.
  kIgnoresLoadHazards,  // the driver looks at hazards of stores only, also when it invalidates
  kLooksThenTakes,      // the driver looks at hazards, and then takes the right
  kReadsThenLooks,      // the driver reads the line, and then looks at hazards
  kFlagsEarly,          // the driver flags holders before their hazards are cleared
  kUnlockThenFill,      // the entry is unlocked, and then the frame is filled
  kOwnThenFill,         // the own word says that the line is here, and then the frame is filled
  kNoHazardAtEnd,       // a store miss returns without a hazard
  kIgnoresLock,         // a locked entry is taken for an unlocked one without holders but the home
  kForgetsReader,       // a reader does not enter itself into the directory
  kWaitsWithHazard,     // a processor that waits for a lock has a hazard published
  kClearsThenReads,     // a load that brings the right to store clears its hazard, and then reads
  kRunOfOtherHolders,   // a run has lines that other nodes have than the first
  kKeepsRunLocked,      // entries behind the end of a run stay locked
  kUnlocksOthers,       // entries behind the end of a run are unlocked, whoever has locked them
  kLooksAtFirstOfRun,   // hazards over the first line of a run count
  kRevokesFirstOfRun,   // only the right to the first line of a run is revoked
  // The faults from here on show only on machines whose checks cache rights. The first are faults of the fabric.
  kSeesNoEpoch,   // rights epochs look as if nothing were cached
  kOneEvenValue,  // all rights epochs in which nothing is cached look the same
  // these of checks,
  kLookThenCache,     // a check looks at the lines, and then says that something is cached
  kEpochThenPublish,  // a check reads the node's rights epoch, and then publishes the hazard
  kCachesAllOfPage,   // a check looks at one line of the page, and caches all lines
  // and these of the driver.
  kReplacesAlone,      // the driver replaces the rights epoch, and does not look at hazards again
  kTrustsOdd,          // an odd rights epoch counts as the even one before it, if the requester has seen that one
  kKnowsLate,          // the rights epoch is compared with the one known at the end of the scan, not at its begin
  kFirstLookInVain,    // a scan that found hazards in the way counts as the first scan
  kReplacesThenTakes,  // the driver replaces the rights epoch, and then takes the right
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);
// Returns whether the fault shows only on machines with runs.
constexpr bool needs_runs(Mutant mutant) {
  return mutant >= Mutant::kRunOfOtherHolders && mutant <= Mutant::kRevokesFirstOfRun;
}
// Returns whether the fault shows only on machines whose loads bring the right to store.
constexpr bool needs_rights_ahead(Mutant mutant) {
  return mutant == Mutant::kClearsThenReads;
}
// Returns whether the fault shows only on machines whose checks cache rights.
constexpr bool needs_cache(Mutant mutant) {
  return mutant >= Mutant::kSeesNoEpoch;
}

// This is the mutant that runs.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

// Returns the operations of a step of a miss as the mutant has them.
[[nodiscard]] Step mutated(const Step& step);

}  // namespace multigrain::dszoom::explored
