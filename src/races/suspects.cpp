#include "races/suspects.h"

#include <algorithm>

namespace multigrain::races {

Level Suspects::note(PageId page, SectionId section, bool is_write, const SectionTable& sections) {
  Entry& entry = pages_[(page.value * 0x9e3779b97f4a7c15u >> 32) & (pages_.size() - 1)];
  if (entry.page_plus_one != page.value + 1) entry = {.page_plus_one = page.value + 1, .uses = {}};
  const auto own = static_cast<uint16_t>(section.owner + 1);
  Use* mine = nullptr;
  Level found = Level::kNot;
  for (Use& use : entry.uses) {
    if (use.owner_plus_one == own) mine = &use;
    if (use.owner_plus_one == 0 || use.owner_plus_one == own) continue;
    if (!is_write && use.written == 0) continue;
    found = std::max(found, Level::kShared);
    const SectionId other{static_cast<uint16_t>(use.owner_plus_one - 1), is_write ? use.read : use.written};
    if (sections.are_concurrent(section, other)) found = Level::kContended;
  }
  if (mine == nullptr) {
    mine = &entry.uses[entry.next];
    entry.next = static_cast<uint8_t>((entry.next + 1) % entry.uses.size());
    *mine = {.owner_plus_one = own};
  }
  // What this owner has written before, and another one reads or writes now, is shared as well.
  if (found == Level::kNot && mine->written != 0 && std::ranges::any_of(entry.uses, [own](const Use& use) {
        return use.owner_plus_one != 0 && use.owner_plus_one != own;
      }))
    found = Level::kShared;
  mine->read = section.number;
  if (is_write) mine->written = section.number;
  if (found <= entry.level) return Level::kNot;
  return entry.level = found;
}

}  // namespace multigrain::races
