#include "trace/analysis/address_map.h"

#include <algorithm>
#include <bit>
#include <map>

namespace multigrain::trace {

uint64_t AddressMap::operator()(uint64_t address) const {
  auto after = std::upper_bound(stretches_.begin(), stretches_.end(), address,
                                [](uint64_t value, const Stretch& stretch) { return value < stretch.from; });
  if (after == stretches_.begin()) return address;
  const Stretch& stretch = *std::prev(after);
  const uint64_t offset = address - stretch.from;
  return offset < stretch.bytes ? stretch.to + offset : address;
}

Result<Batch> MappedTrace::next() {
  auto batch = source_->next();
  if (!batch) return batch;
  references_.assign(batch->references.begin(), batch->references.end());
  for (Reference& reference : references_) reference.address = map_(reference.address);
  batch->references = references_;
  return batch;
}

const char* change_name(Change change) {
  switch (change) {
    case Change::kSeparate:
      return "separate";
    case Change::kPadFields:
      return "pad fields";
    case Change::kRegroup:
      return "regroup";
  }
  return "";
}

namespace {

// Returns whether the same processors use both words in the same way.
bool used_alike(const WordUse& a, const WordUse& b) {
  return a.readers == b.readers && a.writers == b.writers && a.reader == b.reader && a.writer == b.writer;
}

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Plan make_plan(Change change, uint32_t group, const std::vector<WordUse>& words, uint64_t block_bytes,
               unsigned word_bytes) {
  Plan plan{.change = change, .group = group, .map = {}};
  uint64_t next = AddressMap::kArena;  // the place for the next stretch
  uint64_t moved_bytes = 0;
  // With kRegroup, each owner has a piece of the address space, in which its words follow each other.
  constexpr uint64_t kPiece = uint64_t{1} << 40;
  std::map<ProcessorId, uint64_t> used_by_owner;

  size_t i = 0;
  while (i < words.size()) {
    if (group != Plan::kAllGroups && words[i].group != group) {
      ++i;
      continue;
    }
    // The run that stays together is at least what one reference touches at once, and the gaps inside an instance.
    size_t end = i + 1;
    while (end < words.size()) {
      const WordUse& before = words[end - 1];
      const WordUse& word = words[end];
      const bool adjacent = word.address == before.address + word_bytes;
      const bool same_instance = word.group == before.group && word.allocation_address == before.allocation_address;
      if (!(adjacent && before.joined)) {
        if (!same_instance) break;
        if (change == Change::kPadFields && !(adjacent && used_alike(before, word))) break;
        if (change == Change::kRegroup && !(adjacent && before.owner == word.owner)) break;
        // Memory without allocations has no instances. There, a gap of more than a block ends the run.
        if (change == Change::kSeparate && word.group == 0 && word.address - before.address > block_bytes) break;
      }
      ++end;
    }
    const uint64_t from = words[i].address;
    const uint64_t bytes = words[end - 1].address + word_bytes - from;
    moved_bytes += bytes;
    if (change == Change::kRegroup) {
      uint64_t& used = used_by_owner[words[i].owner];
      // The words of a reference keep their alignment, so that no reference begins to straddle two blocks.
      used = round_up(used, bytes <= 8 ? std::bit_ceil(bytes) : 8);
      plan.map.add({.from = from, .bytes = bytes, .to = AddressMap::kArena + words[i].owner * kPiece + used});
      used += bytes;
    } else {
      plan.map.add({.from = from, .bytes = bytes, .to = next});
      next += round_up(bytes, block_bytes);
    }
    i = end;
  }
  uint64_t total = next - AddressMap::kArena;
  for (const auto& [owner, used] : used_by_owner) total += round_up(used, block_bytes);
  plan.extra_bytes = total > moved_bytes ? total - moved_bytes : 0;
  return plan;
}

}  // namespace multigrain::trace
