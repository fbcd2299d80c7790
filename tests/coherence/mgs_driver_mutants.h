// A mutant is a deliberate fault of MGS's driver, of its transitions, or of what both stand on. The tests of mutants,
// and the command `explore`, are built from the driver's own sources with these faults in them;
// mgs_driver_mutants.cmake makes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace multigrain::mgs::explored {

enum class Mutant : uint8_t {
  kNone,
  kForgetQueueEntry,         // Figure 22, arc 12: an invalidation takes the page off the delayed update queue
  kIgnoreOtherReleases,      // a release waits for its own pages only
  kMergeDiffAtOnce,          // a diff that comes before the 1WDATA of its round is merged, not kept
  kDiffBeforeUnmap,          // PINV_ACK is assumed: the diff is made while processors may still write
  kMapBeforeQueue,           // a page is made writable, and then joins the delayed update queue
  kNoTwin,                   // a written copy is returned whole, as if every word had changed
  kLoseWake,                 // a processor that waits for a page is not woken
  kPrepareAfterTransition,   // a processor looks at the count of wake-ups when its request is out
  kUncountedPages,           // pages leave the queue, and then count in a release epoch
  kOneEpoch,                 // a release waits for one epoch to end, not for two
  kMarkBeforePages,          // a release marks the epoch before it takes its pages off the queue
  kForgetsToFinish,          // a release that joins another's leaves its own epoch open
  kSlotOfLastRelease,        // a release that joins another's takes over what that one's RACK ends
  kJoinsOthers,              // a release takes another domain's, which it joins, for one of its own domain
  kFinishesFirst,            // a RACK ends the releases of one domain, and not of all that have joined
  kShootsOneDown,            // PINV goes to one of the domains that have mapped the page
  kActionsWithoutLock,       // a message's actions are carried out when the page's lock has been let go of
  kWritesUnderReadRight,     // a home that stays a reader keeps the right to write
  kUpgradeBehindRelease,     // a read copy is upgraded while a REL is out
  kDataBeforeRack,           // at the end of a round data are sent before RACK
  kReorderMessages,          // channels are not first in, first out
  kOpenBeforeMerge,          // a home opens a page's word, and then merges what the message has brought
  kReadersForgottenAtRel,    // who has read by itself is not in the directory when a release decides on its round
  kReadersForgottenAtGrant,  // nor when the home makes itself the single writer
  kReadersFoundLate,         // the word is closed when a release has decided on its round
  kMapsVoid,                 // what was read by itself is mapped though INV has come meanwhile
  kOpenUnderSingleWriter,    // the word is open while a node is the single writer
  kKeepsReaders,             // a word is opened with the bits that it had
  kGetBeforeAdd,             // a page is read, and then the node adds its bit
  kGetsClosed,               // a page is read into its frame though its word was closed, and then asked for
  kReadsClosed,              // a page is mapped though its word was closed
  kCount
};
[[nodiscard]] const char* name(Mutant mutant);

// Programs use so many bytes of a page. kNoTwin takes them for changed.
inline constexpr size_t kBytesUsed = 32;

// This is the mutant that runs.
inline Mutant g_mutant = Mutant::kNone;
inline bool is(Mutant mutant) {
  return g_mutant == mutant;
}

}  // namespace multigrain::mgs::explored
