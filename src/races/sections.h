// The sections that a judge knows: their clocks, and where they began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "races/clock.h"

namespace multigrain::races {

class SectionTable {
 public:
  // Where a section began: the call of synchronisation returns to `site`, which is 0 if it is not known.
  struct Section {
    uint64_t number = 0;
    uint64_t site = 0;
  };

  // Keeps the latest sections of each owner, in at most `bytes` of memory, and at least 16 of each.
  SectionTable(size_t owners, size_t bytes);

  // The owner has begun this section. Its sections must come in ascending order.
  void begin(SectionId id, uint64_t site, ClockView clock);

  // Returns the section's clock, or nothing if the section is forgotten, or was never begun.
  [[nodiscard]] std::optional<ClockView> clock_of(SectionId id) const;
  // Returns where the section began, as far as that is known.
  [[nodiscard]] uint64_t site_of(SectionId id) const;

  // Returns whether the two sections are concurrent. Where one of them is forgotten, the answer is no.
  [[nodiscard]] bool are_concurrent(SectionId a, SectionId b) const;
  // Returns whether the section happens before everything that any other owner will do: no later access can race with
  // one of this section.
  [[nodiscard]] bool is_over_for_all(SectionId id) const;

 private:
  [[nodiscard]] size_t place_of(SectionId id) const { return id.owner * kept_ + id.number % kept_; }
  [[nodiscard]] ClockView clock_at(size_t place) const { return {&clocks_[place * owners_], owners_}; }

  const size_t owners_;
  const size_t kept_;  // of each owner
  std::vector<Section> sections_;
  std::vector<uint64_t> clocks_;
  std::vector<uint64_t> latest_;  // the number of each owner's latest section; 0: none
};

}  // namespace multigrain::races
