#include "memory/heap/home_claims.h"

#include "base/error.h"
#include "base/node_set.h"

namespace multigrain {

HomeClaims::Answer HomeClaims::claim(PageId page) {
  static_assert(NodeSet::kCapacity < 1u << kPageShift);
  for (unsigned i = 0; i < kTries && location_.entries != 0; ++i) {
    const uint64_t mine = entry(page, fabric_.self());
    const uint64_t there = fabric_.compare_and_swap(arbiter(page), SegmentId::kWords, at(page, i), 0, mine);
    if (there == 0) return {true, fabric_.self()};
    if (there >> kPageShift == page.value) return {true, home_in(there, page)};
  }
  return {false, std::nullopt};
}

HomeClaims::Answer HomeClaims::look_up(PageId page) {
  for (unsigned i = 0; i < kTries && location_.entries != 0; ++i) {
    uint64_t there = 0;
    fabric_.get(arbiter(page), SegmentId::kWords, at(page, i), std::as_writable_bytes(std::span(&there, 1)));
    if (there == 0) return {true, std::nullopt};
    if (there >> kPageShift == page.value) return {true, home_in(there, page)};
  }
  return {false, std::nullopt};
}

NodeId HomeClaims::home_in(uint64_t entry, PageId page) const {
  const uint64_t home_plus_one = entry & ((uint64_t{1} << kPageShift) - 1);
  if (home_plus_one == 0 || home_plus_one > fabric_.nodes())
    panic("a page's home is a node that does not exist: page, home, says node", page.value, home_plus_one - 1,
          arbiter(page).value);
  return NodeId(static_cast<uint16_t>(home_plus_one - 1));
}

}  // namespace multigrain
