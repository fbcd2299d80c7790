#include "trace/analysis/variable_blocks.h"

#include <algorithm>

namespace multigrain::trace {

TraceByGroup::TraceByGroup(std::unique_ptr<TraceSource> source, std::vector<Group>& groups)
    : source_(std::move(source)), groups_(groups) {
  groups_.assign(1, Group{});
}

Result<Batch> TraceByGroup::next() {
  auto batch = source_->next();
  if (!batch) return batch;
  references_.assign(batch->references.begin(), batch->references.end());
  size_t next_event = 0;
  const auto take_events = [&](uint64_t up_to) {
    for (; next_event < batch->events.size() && batch->events[next_event].position <= up_to; ++next_event) {
      const Event& event = batch->events[next_event];
      if (allocations_.consume(event) == Allocations::kNone) continue;
      const auto last = static_cast<uint32_t>(std::min<size_t>(groups_.size(), kMaxGroups - 1));
      const auto [found, fresh] = numbers_.try_emplace({event.name, event.site}, last);
      if (fresh && last == groups_.size()) groups_.push_back({.name = event.name, .site = event.site});
      group_of_allocation_.push_back(found->second);
    }
  };
  for (size_t i = 0; i < references_.size(); ++i) {
    take_events(batch->first + i);
    Reference& reference = references_[i];
    if (reference.address >> kGroupShift != 0)
      return fail("reference {} is to address {:#x}; blocks of several sizes need addresses below 2^{}",
                  batch->first + i, reference.address, kGroupShift);
    const uint32_t group = group_of_allocation_[allocations_.find(reference.address)];
    ++groups_[group].references;
    reference.address |= uint64_t{group} << kGroupShift;
  }
  take_events(~uint64_t{0});
  return Batch{.first = batch->first, .references = references_, .events = batch->events};
}

double VariableBlocks::at(size_t size) const {
  double sum = 0;
  for (const std::vector<double>& of_group : costs) sum += of_group[size];
  return sum;
}

void choose(VariableBlocks& blocks) {
  blocks.best.clear();
  blocks.cost = 0;
  for (const std::vector<double>& of_group : blocks.costs) {
    const auto least = std::ranges::min_element(of_group);
    blocks.best.push_back(static_cast<size_t>(least - of_group.begin()));
    blocks.cost += *least;
  }
}

}  // namespace multigrain::trace
