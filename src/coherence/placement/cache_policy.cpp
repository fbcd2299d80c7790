#include "coherence/placement/cache_policy.h"

namespace multigrain::placement {
namespace {

Location location_of(Decision decision, NodeId from) {
  const bool is_here =
      decision.kind == Decision::Kind::kLocal || (decision.kind == Decision::Kind::kMove && decision.to == from.value);
  return is_here ? Location::kLocal : Location::kGlobal;
}

}  // namespace

Location cache_policy(Policy& policy, PageMemo& memo, const Directory& directory, PageId page, unsigned nodes,
                      NodeId from, Access access, uint64_t now) {
  const bool is_write = access == Access::kWrite;
  const bool is_global = directory.placement == Placement::kGlobalWritable;
  const uint64_t copies = is_global ? 0 : directory.holders.bits();
  BlockState block{.block = page.value,
                   .places = nodes,
                   .in_global = is_global || memo.is_in_global,
                   .copies = {&copies, 1},
                   .memo = std::span<uint64_t, 4>(memo.policy),
                   .counters = {}};
  const Reference reference{.from = from.value, .is_write = is_write, .time = now};
  Location location = Location::kLocal;
  if (!memo.is_placed) {
    memo.is_placed = true;
    const Decision first = policy.first(block, reference);
    location = first.kind == Decision::Kind::kStay ? Location::kLocal : location_of(first, from);
  } else if (!block.has_copy(from.value) || block.copy_count() > 1) {
    location = location_of(policy.on_reference(block, reference), from);
  }
  if (location == Location::kGlobal)
    memo.is_in_global = true;
  else if (is_write)
    memo.is_in_global = false;
  return location;
}

}  // namespace multigrain::placement
