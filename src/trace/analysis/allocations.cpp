#include "trace/analysis/allocations.h"

#include "base/error.h"

namespace multigrain::trace {

uint32_t Allocations::consume(const Event& event) {
  if (event.kind != EventKind::kAllocate) return kNone;
  const uint64_t end = event.address + (event.value == 0 ? 1 : event.value);
  by_address_.erase(by_address_.lower_bound(event.address), by_address_.lower_bound(end));
  MG_CHECK(all_.size() < ~uint32_t{0});
  const auto number = static_cast<uint32_t>(all_.size());
  all_.push_back({event.address, event.value, event.name, event.site});
  by_address_.emplace(event.address, number);
  return number;
}

uint32_t Allocations::find(uint64_t address) const {
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return kNone;
  const uint32_t number = std::prev(after)->second;
  return address - all_[number].address < all_[number].bytes ? number : kNone;
}

}  // namespace multigrain::trace
