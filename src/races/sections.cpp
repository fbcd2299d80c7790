#include "races/sections.h"

namespace multigrain::races {

SectionTable::SectionTable(size_t owners, size_t bytes)
    : owners_(owners),
      kept_(std::max<size_t>(16, bytes / owners / (sizeof(Section) + owners * sizeof(uint64_t)))),
      sections_(owners * kept_),
      clocks_(owners * kept_ * owners),
      latest_(owners) {}

void SectionTable::begin(SectionId id, uint64_t site, ClockView clock) {
  const size_t place = place_of(id);
  sections_[place] = {id.number, site};
  std::copy_n(clock.begin(), owners_, clocks_.begin() + static_cast<ptrdiff_t>(place * owners_));
  latest_[id.owner] = id.number;
}

std::optional<ClockView> SectionTable::clock_of(SectionId id) const {
  const size_t place = place_of(id);
  if (id.number == 0 || sections_[place].number != id.number) return std::nullopt;
  return clock_at(place);
}

uint64_t SectionTable::site_of(SectionId id) const {
  const Section& section = sections_[place_of(id)];
  return section.number == id.number ? section.site : 0;
}

bool SectionTable::are_concurrent(SectionId a, SectionId b) const {
  if (a.owner == b.owner) return false;
  const auto of_a = clock_of(a), of_b = clock_of(b);
  return of_a && of_b && races::are_concurrent(a, *of_a, b, *of_b);
}

bool SectionTable::is_over_for_all(SectionId id) const {
  for (size_t owner = 0; owner < owners_; ++owner) {
    if (owner == id.owner) continue;
    const SectionId last{static_cast<uint16_t>(owner), latest_[owner]};
    if (last.number == 0 || !happens_before(id, clock_at(place_of(last)))) return false;
  }
  return true;
}

}  // namespace multigrain::races
