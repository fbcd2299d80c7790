// The states, events and actions of HLRC: one page at one node. The table that ties them is in transitions.cpp.
#pragma once

#include <cstdint>

#include "coherence/action_list.h"

namespace multigrain::hlrc {

// What the node's processors may do with a page through their view of its frame.
enum class PageState : uint8_t {
  kInvalid,
  kPrefetched,  // as kInvalid, but the frame was fetched ahead of a processor. Never at the page's home
  kRead,
  kWrite,
};

// Everything a node knows of a page. All zero is the initial state.
struct Page {
  PageState state = PageState::kInvalid;
  bool queued = false;          // on the list of pages written in this interval
  bool notice_pending = false;  // the home copy was changed by this node in this interval: a notice is due at its end
  bool shared = false;  // at the home: another node has fetched the page since its last notice, so writes are noticed
  bool logged = false;  // elsewhere: the home's fetch log names this node, since its last notice that was taken in here

  bool operator==(const Page&) const = default;
};

enum class Access : uint8_t { kRead, kWrite };

// The other events of a page have no operands: a prefetch, a write notice of another node, a deposit that is complete,
// a fetch by another node, the end of the interval, its publication, and that the home moves.

// What the driver must do, in order, before it lets go of the page.
enum class Verb : uint8_t {
  kLogFetch,     // append the page to its home's fetch log, before the fetch begins (H5)
  kFetch,        // fill the frame from the home copy
  kMakeTwin,     // copy the frame
  kQueue,        // append the page to the list of this interval
  kGrantRead,    // the page was without rights
  kGrantWrite,   // the page was without rights, or has them already
  kUpgrade,      // the page was readable
  kRevokeWrite,  // and wait until it has taken effect on all processors of the node
  kRevoke,       // likewise
  kDeposit,      // put the difference from the twin into the home copy; on_deposited() says what came of it
  kDropTwin,
  kNotice,  // this interval's notices include the page
  kWasted,  // the page was fetched ahead, and no processor used it
};

// The longest is that of a write fault on a page without rights, elsewhere than at home.
using Actions = ActionList<Verb, 5>;

// What a fault says about the pages that follow.
enum class FaultOutcome : uint8_t {
  kAlone,      // nothing
  kPrivate,    // the page is at home here and no other node has it: those that follow may be opened as well
  kFetched,    // a read has fetched it: those that follow may be fetched ahead (B.2)
  kPrefetched  // a read has found it fetched ahead: that was right, and goes on
};

}  // namespace multigrain::hlrc
