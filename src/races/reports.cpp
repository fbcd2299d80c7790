#include "races/reports.h"

#include <fmt/format.h>

#include <algorithm>

namespace multigrain::races {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kMostPages = 65536;  // of which is known that they had a race

std::string count_of(uint64_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

}  // namespace

// Names the place of an access: the same place has the same name.
std::string Reports::where(const Access& access) {
  if (access.pc == 0) return fmt::format("node {}", access.section.owner);
  std::string& name = names_[{access.pc, access.caller}];
  if (!name.empty()) return name;
  name = places_.instruction(access.pc);
  if (access.caller != 0) name += fmt::format(", called in {}", places_.call(access.caller));
  return name;
}

std::string Reports::describe(const Access& access) {
  const char* const kind = access.is_write ? "write" : "read";
  const std::string bytes = count_of(access.bytes, "byte");
  if (access.pc == 0)
    return fmt::format("a {} of {} by node {}, at a place that was not seen", kind, bytes, access.section.owner);
  const std::string who = access.processor == Access::kNoProcessor ? std::string("a thread that is no processor")
                                                                   : fmt::format("processor {}", access.processor);
  return fmt::format("a {} of {} by {} on node {}: {}", kind, bytes, who, access.section.owner, where(access));
}

std::string Reports::when(const Access& access, const SectionTable& sections) {
  const uint64_t site = sections.site_of(access.section);
  if (site == 0) return fmt::format("section {} of node {}", access.section.number, access.section.owner);
  return fmt::format("section {} of node {}, which began with a call of Multigrain in {}", access.section.number,
                     access.section.owner, places_.call(site));
}

std::string Reports::add(const Access& earlier, const Access& later, const SectionTable& sections) {
  const Access* one = &earlier;
  const Access* other = &later;
  std::pair<std::string, std::string> key{where(*one), where(*other)};
  const auto kind = [](const Access& access) { return access.is_write ? " w" : " r"; };
  key.first += kind(*one);
  key.second += kind(*other);
  if (key.second < key.first) {
    std::swap(key.first, key.second);
    std::swap(one, other);
  }
  const bool is_placed = one->pc != 0 && other->pc != 0;
  const uint64_t at = std::max(one->address, other->address);
  if (is_placed) {
    if (pages_told_.size() < kMostPages) pages_told_.insert(at / kPage);
    places_told_.insert(where(*one));
    places_told_.insert(where(*other));
  }
  if (const auto known = pairs_.find(key); is_placed && known != pairs_.end()) {
    ++known->second.count;
    return {};
  }
  if (!is_placed) {
    if (const auto known = unplaced_.find(key); known != unplaced_.end()) {
      ++known->second.count;
      return {};
    }
  }
  if ((is_placed ? pairs_.size() : unplaced_.size()) >= kMostPairs) {
    ++more_;
    return {};
  }
  const std::string block = places_.block(base_ + at);
  std::string text = fmt::format(
      "multigrain: data race at {:#x}{}{}:\n"
      "  {}\n"
      "    in {};\n"
      "  {}\n"
      "    in {};\n"
      "  no release of one of the nodes and acquire of the other orders these sections.\n",
      base_ + at, block.empty() ? "" : ", ", block, describe(*one), when(*one, sections), describe(*other),
      when(*other, sections));
  if (!is_placed) {
    const Access& seen = one->pc != 0 ? *one : *other;
    unplaced_[key] = {.page = at / kPage, .place = seen.pc != 0 ? where(seen) : std::string(), .text = text};
    return {};
  }
  pairs_[key].count = 1;
  return text;
}

std::string Reports::finish(uint64_t forgotten) {
  std::string text;
  uint64_t told = 0, count = 0;
  for (const auto& [key, race] : unplaced_) {
    if (pages_told_.contains(race.page) || places_told_.contains(race.place)) continue;
    text += race.text;
    ++told;
    count += race.count;
  }
  for (const auto& [key, pair] : pairs_) count += pair.count;
  if (pairs_.size() + told != 0)
    text += fmt::format("multigrain: {} between {} of places; docs/user/races.md says what that means\n",
                        count_of(count, "data race"), count_of(pairs_.size() + told, "pair"));
  if (more_ != 0)
    text += fmt::format("multigrain: {} more {} found between other places, of which a run can tell {} pairs\n",
                        count_of(more_, "data race"), more_ == 1 ? "was" : "were", kMostPairs);
  if (forgotten != 0)
    text += fmt::format(
        "multigrain: --races forgot {} before all later ones could be compared with them, so races may have been missed\n",
        forgotten == 1 ? std::string("1 access") : fmt::format("{} accesses", forgotten));
  return text;
}

}  // namespace multigrain::races
