#include "trace/analysis/owners.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <tuple>

namespace multigrain::trace {

void BlockOwners::add(uint64_t block_bytes, uint64_t block) {
  const auto shift = static_cast<unsigned>(std::countr_zero(block_bytes));
  auto size = std::find_if(sizes_.begin(), sizes_.end(), [&](const Size& each) { return each.shift == shift; });
  if (size == sizes_.end()) size = sizes_.insert(sizes_.end(), Size{.shift = shift, .blocks = {}, .counts = {}});
  if (size->blocks.id(block) < size->counts.size()) return;
  Counts& counts = size->counts.emplace_back();
  counts.readers = counts.writers = ProcessorSets(processors_);
  counts.readers.reserve_set(0);
  counts.writers.reserve_set(0);
}

void BlockOwners::consume(const Batch& batch) {
  if (sizes_.empty()) return;
  size_t next_event = 0;
  for (size_t i = 0; i < batch.references.size(); ++i) {
    for (; next_event < batch.events.size() && batch.events[next_event].position <= batch.first + i; ++next_event)
      allocations_.consume(batch.events[next_event]);
    const Reference& reference = batch.references[i];
    for (Size& size : sizes_) {
      const uint32_t number = size.blocks.find(reference.address >> size.shift);
      if (number == BlockIds::kNone) continue;
      Counts& counts = size.counts[number];
      const Allocation& allocation = allocations_[allocations_.find(reference.address)];
      ++counts.owners[{allocation.name, allocation.site}];
      ++counts.sites[reference.site];
      (reference.access == Access::kRead ? counts.readers : counts.writers).insert(0, reference.processor);
    }
  }
  for (; next_event < batch.events.size(); ++next_event) allocations_.consume(batch.events[next_event]);
}

BlockUse BlockOwners::use(uint64_t block_bytes, uint64_t block) const {
  const auto shift = static_cast<unsigned>(std::countr_zero(block_bytes));
  for (const Size& size : sizes_) {
    if (size.shift != shift) continue;
    const uint32_t number = size.blocks.find(block);
    MG_CHECK(number != BlockIds::kNone);
    const Counts& counts = size.counts[number];
    BlockUse use;
    for (const auto& [origin, references] : counts.owners)
      use.owners.push_back({.name = origin.first, .site = origin.second, .references = references});
    use.sites.assign(counts.sites.begin(), counts.sites.end());
    std::ranges::sort(use.owners, std::greater<>(),
                      [](const BlockOwner& owner) { return std::tuple(owner.references, owner.name, owner.site); });
    std::ranges::sort(use.sites, std::greater<>(), [](const auto& site) { return std::pair(site.second, site.first); });
    use.readers = counts.readers.count(0);
    use.writers = counts.writers.count(0);
    return use;
  }
  panic("a block that was not added", block);
}

}  // namespace multigrain::trace
