#include "memory/heap/extents.h"

namespace multigrain {

std::optional<NodeId> home_in(const Extent& extent, PageId page, unsigned nodes) {
  switch (extent.placement.policy) {
    case HomePolicy::kInterleaved:
      return NodeId(static_cast<uint16_t>(page.value % nodes));
    case HomePolicy::kBlocked:
      return NodeId(static_cast<uint16_t>((page.value - extent.first.value) * nodes / extent.pages));
    case HomePolicy::kNode:
      return extent.placement.node;
    case HomePolicy::kFirstTouch:
      return std::nullopt;
  }
  panic("extent with an unknown home policy:", static_cast<uint64_t>(extent.placement.policy));
}

void ExtentTable::append(const Extent& extent) {
  const uint64_t count = count_.load(std::memory_order_relaxed);
  MG_CHECK(count < capacity(), count);
  MG_CHECK(extent.pages > 0);
  if (count > 0) {
    const Extent& last = extents_[count - 1];
    MG_CHECK(extent.first.value >= last.first.value + last.pages, extent.first.value);
  }
  extents_[count] = extent;
  // A reader that sees the new count sees the extent.
  count_.store(count + 1, std::memory_order_release);
}

std::optional<Extent> ExtentTable::find(PageId page) const {
  uint64_t low = 0;
  uint64_t high = count();
  while (low < high) {  // searches the first extent above the page
    const uint64_t middle = low + (high - low) / 2;
    if (extents_[middle].first.value <= page.value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0 || !extents_[low - 1].contains(page)) return std::nullopt;
  return extents_[low - 1];
}

}  // namespace multigrain
