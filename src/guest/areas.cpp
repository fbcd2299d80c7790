#include "guest/areas.h"

#include <algorithm>
#include <iterator>

namespace multigrain::guest {

std::optional<Range> Areas::allowed_around(uint64_t address) const {
  for (const Range one : allowed_)
    if (address >= one.begin && address < one.end) return one;
  return std::nullopt;
}

bool Areas::is_in_allowed(Range range) const {
  const auto around = allowed_around(range.begin);
  return around && range.begin < range.end && range.end <= around->end;
}

bool Areas::is_allowed(Range range) const {
  if (!is_in_allowed(range)) return false;
  return std::ranges::none_of(
      reserved_, [range](Range reserved) { return reserved.begin < range.end && range.begin < reserved.end; });
}

void Areas::reserve(Range range) {
  by_begin_.emplace(
      range.begin,
      Mapped{.end = range.end, .rights = 0, .is_shared = false, .file = 0, .offset = 0, .is_reserved = true});
  reserved_.push_back(range);
  std::ranges::sort(reserved_, {}, &Range::begin);
}

bool Areas::is_reserved(uint64_t address) const {
  return std::ranges::any_of(reserved_,
                             [address](Range range) { return address - range.begin < range.end - range.begin; });
}

std::vector<Range> Areas::without_reserved(Range range) const {
  std::vector<Range> parts;
  for (const Range reserved : reserved_) {
    if (reserved.end <= range.begin || reserved.begin >= range.end) continue;
    if (reserved.begin > range.begin) parts.push_back({range.begin, reserved.begin});
    range.begin = reserved.end;
    if (range.begin >= range.end) return parts;
  }
  parts.push_back(range);
  return parts;
}

bool Areas::is_free(Range range) const {
  const auto next = by_begin_.lower_bound(range.begin);
  if (next != by_begin_.end() && next->first < range.end) return false;
  return next == by_begin_.begin() || std::prev(next)->second.end <= range.begin;
}

std::optional<uint64_t> Areas::find_free(uint64_t bytes, std::optional<Range> within) const {
  const Range range = within.value_or(chosen_);
  Searched& searched = searched_[range.end];
  uint64_t end = bytes >= searched.bytes ? std::min(searched.end, range.end) : range.end;
  auto next = by_begin_.lower_bound(end);
  while (true) {
    const bool is_first = next == by_begin_.begin();
    const uint64_t lowest = is_first ? range.begin : std::max(range.begin, std::prev(next)->second.end);
    if (end > lowest && end - lowest >= bytes) {
      if (bytes <= searched.bytes) searched = {.bytes = bytes, .end = end};
      return end - bytes;
    }
    if (is_first) return std::nullopt;
    --next;
    end = std::min(end, next->first);
    if (end <= range.begin) return std::nullopt;
  }
}

void Areas::cut(uint64_t address) {
  auto at = by_begin_.upper_bound(address);
  if (at == by_begin_.begin()) return;
  --at;
  if (at->first == address || at->second.end <= address) return;
  Mapped upper = at->second;
  if (upper.file != 0) upper.offset += address - at->first;
  at->second.end = address;
  by_begin_.emplace(address, upper);
}

void Areas::unmap(Range range) {
  cut(range.begin);
  cut(range.end);
  by_begin_.erase(by_begin_.lower_bound(range.begin), by_begin_.lower_bound(range.end));
  search_again(range);
}

void Areas::search_again(Range range) {
  const auto next = by_begin_.lower_bound(range.end);
  const uint64_t end = next == by_begin_.end() ? UINT64_MAX : next->first;
  for (auto& [limit, searched] : searched_) searched.end = std::max(searched.end, std::min(end, limit));
}

void Areas::map(const Area& area) {
  cut(area.range.begin);
  cut(area.range.end);
  by_begin_.erase(by_begin_.lower_bound(area.range.begin), by_begin_.lower_bound(area.range.end));
  uint64_t begin = area.range.begin;
  Mapped mapped{.end = area.range.end,
                .rights = area.rights,
                .is_shared = area.is_shared,
                .file = area.file,
                .offset = area.file != 0 ? area.offset : 0};
  // Neighbours of the same kind become one area: allocators grow by steps.
  const auto is_same = [&mapped](const Mapped& other) {
    return other.rights == mapped.rights && other.is_shared == mapped.is_shared && other.file == 0 &&
           mapped.file == 0 && !other.is_reserved;
  };
  auto next = by_begin_.lower_bound(begin);
  if (next != by_begin_.end() && next->first == mapped.end && is_same(next->second)) {
    mapped.end = next->second.end;
    next = by_begin_.erase(next);
  }
  if (next != by_begin_.begin()) {
    const auto before = std::prev(next);
    if (before->second.end == begin && is_same(before->second)) {
      begin = before->first;
      by_begin_.erase(before);
    }
  }
  by_begin_.emplace(begin, mapped);
}

void Areas::set_rights(Range range, int rights) {
  for (Area area : in(range)) {
    area.rights = rights;
    map(area);
  }
}

std::optional<Range> Areas::range_around(uint64_t address) const {
  const auto next = by_begin_.upper_bound(address);
  if (next == by_begin_.begin() || std::prev(next)->second.end <= address) return std::nullopt;
  return Range{std::prev(next)->first, std::prev(next)->second.end};
}

std::vector<Area> Areas::around(uint64_t address) const {
  const auto range = range_around(address);
  return range ? in(*range) : std::vector<Area>{};
}

std::vector<Area> Areas::in(Range range) const {
  std::vector<Area> found;
  auto at = by_begin_.upper_bound(range.begin);
  if (at != by_begin_.begin()) --at;
  for (; at != by_begin_.end() && at->first < range.end; ++at) {
    const Range part{std::max(at->first, range.begin), std::min(at->second.end, range.end)};
    if (part.begin >= part.end || at->second.is_reserved) continue;
    const Mapped& mapped = at->second;
    found.push_back({.range = part,
                     .rights = mapped.rights,
                     .is_shared = mapped.is_shared,
                     .file = mapped.file,
                     .offset = mapped.file != 0 ? mapped.offset + (part.begin - at->first) : 0});
  }
  return found;
}

}  // namespace multigrain::guest
