// This is the thesis's cache_policy ([Bolosky], section 3.1.3): it asks a policy (placement/policy.h), which also the simulator of
// traces asks, where a page of a run should be. The home calls it for kAskPolicy (states.h).
//
// A run has fewer answers than the simulator: the page is in the memory of the node that refers to it, or in global memory, which
// is the home's frame. What a policy leaves where it is, or wants at a third node, is in global memory here, unless that node
// is the one that refers to it: nodes have no references to each other's copies. Where homes are where pages are touched first, "where it is" is the
// home for a page that has one user.
//
// No function is thread-safe: the driver holds the page's lock. None allocates or blocks, so all may run in a signal handler.
#pragma once

#include <array>
#include <cstdint>

#include "base/ids.h"
#include "coherence/placement/states.h"
#include "placement/policy.h"

namespace multigrain::placement {

// The home keeps this of each page. All fields are zero before the first decision, and after kForget.
struct PageMemo {
  std::array<uint64_t, 4> policy{};  // BlockState::memo
  bool is_placed = false;            // Policy::first() has been asked
  bool is_in_global = false;         // the page has been in global memory since a node had the only copy
};

// Answers kAskPolicy for a reference by node `from`, `access`, at time `now` in nanoseconds. `directory` is the page's entry before
// the decision, and `nodes` how many nodes there are. The policy is asked at a page's first reference, and then at one by a
// node without a copy, or at a write while there are other copies, as by the simulator; a node that writes the only copy, which
// it had to read, keeps it.
[[nodiscard]] Location cache_policy(Policy& policy, PageMemo& memo, const Directory& directory, PageId page,
                                    unsigned nodes, NodeId from, Access access, uint64_t now);

}  // namespace multigrain::placement
