#include "check/guarded_block.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/fnv.h"

namespace multigrain::check {

uint32_t BlockRecord::sum_of_rest() const {
  Fnv hash;
  hash.mix(std::as_bytes(std::span(this, 1)).first(offsetof(BlockRecord, sum)));
  return static_cast<uint32_t>(hash.value());
}

bool BlockRecord::is_intact(uint64_t address, size_t usable) const {
  return sum == sum_of_rest() && block == address && (state == State::kLive || state == State::kFreed) &&
         usable >= kTail + kLeastRedzone && size <= usable - kTail - kLeastRedzone;
}

std::optional<size_t> with_redzone(size_t size) {
  constexpr size_t kUnit = 16;
  size_t all = 0;
  if (__builtin_add_overflow(size, kLeastRedzone + kTail + kUnit - 1, &all)) return std::nullopt;
  return all / kUnit * kUnit;
}

std::optional<Damage> find_damage(std::span<const uint8_t> bytes, uint8_t known) {
  const auto differs = [known](uint8_t byte) { return byte != known; };
  const auto first = std::ranges::find_if(bytes, differs);
  if (first == bytes.end()) return std::nullopt;
  const auto last = std::find_if(std::make_reverse_iterator(bytes.end()), std::make_reverse_iterator(first), differs);
  return Damage{.first = static_cast<size_t>(first - bytes.begin()),
                .last = static_cast<size_t>(last.base() - bytes.begin()) - 1};
}

}  // namespace multigrain::check
