// This has the states, events and actions of HLRC for one page at one node, as values. The table that ties them is in
// transitions.cpp.
#pragma once

#include <cstdint>

#include "base/node_set.h"
#include "coherence/action_list.h"

namespace multigrain::hlrc {

// The state says what rights the node's processors have to a page through their view of its frame.
enum class PageState : uint8_t {
  kInvalid,
  kPrefetched,  // kInvalid, but the frame is fetched; never at home
  kRead,
  kWrite,
  kByLines,  // a line protocol keeps the page coherent, from a barrier on
};

// This is everything that a node knows of a page. All zero is the initial state.
struct Page {
  PageState state = PageState::kInvalid;
  bool queued = false;          // listed as written in this interval
  bool notice_pending = false;  // this node has changed the home copy
  bool shared = false;          // at the home: fetched since its last notice
  bool logged = false;          // elsewhere: logged since the last notice

  bool operator==(const Page&) const = default;
};

enum class Access : uint8_t { kRead, kWrite };

// The other events of a page have functions of their own: a prefetch, a write notice of another node, a deposit that is
// complete, a fetch by another node, the end of the interval, its publication, and a move of the home.

// The nodes that have written a page in the last episodes, as far as it matters for where its home is. Every node keeps the
// same of every page.
struct Writers {
  static constexpr unsigned kMostMoves = 6;  // that are counted

  // The node that alone wrote the page in the last episode in which it was written; 0: none.
  uint32_t last_plus_one : 11 = 0;
  // Where the home has moved; 0: it is where it was placed, which a node may not know.
  uint32_t home_plus_one : 11 = 0;
  uint32_t episodes : 7 = 0;  // so many such episodes came one after the other; at most needed() + 1
  uint32_t moves : 3 = 0;     // that the home made after the first one; at most kMostMoves

  // Returns how many such episodes are needed for the home to move, but for one.
  [[nodiscard]] unsigned needed() const { return (1u << moves) - 1; }
  bool operator==(const Writers&) const = default;
};
static_assert(sizeof(Writers) == sizeof(uint32_t) && NodeSet::kCapacity < 1u << 11);

// What the driver must do, in order, before it lets go of the page.
enum class Verb : uint8_t {
  kLogFetch,     // append the page to its home's fetch log, before the fetch begins (H5)
  kFetch,        // fill the frame from the home copy
  kMakeTwin,     // copy the frame
  kQueue,        // append the page to the list of this interval
  kGrantRead,    // the page had no rights
  kGrantWrite,   // the page had no rights, or has them already
  kUpgrade,      // the page was readable
  kRevokeWrite,  // wait until no processor of the node can write
  kRevoke,       // wait until no processor of the node has rights
  kDeposit,      // deposit the diff; on_deposited() gets the result
  kDropTwin,
  kUpdateTwin,  // make the twin equal to what the diff was made of
  kRefresh,     // fill the frame from the home copy, while the node can read it
  kMerge,       // store what the home copy has changed since the twin, into both
  kNotice,      // this interval's notices include the page
  kWasted,      // the page was fetched ahead, and not used
};

// The longest list is that of a write fault on a page without rights at a node that is not its home.
using Actions = ActionList<Verb, 5>;

// A fault says this about the pages that follow.
enum class FaultOutcome : uint8_t {
  kAlone,      // no conclusion
  kFetched,    // a read has fetched: those that follow may be fetched (B.2)
  kPrefetched  // a read found it fetched ahead: fetch more
};

}  // namespace multigrain::hlrc
