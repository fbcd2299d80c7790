// Happens-before, as a judgement about values. It knows nothing of pages, of protocols, or of how accesses were seen, so
// any detector can use it, whatever it counts as an owner.
//
// What an **owner** does is divided into **sections**, which are numbered from 1 on. A section ends whenever the owner
// synchronises. An owner has a **clock**: for each owner, the number of the first of its sections that is *not* known to
// be over. An owner that releases goes on to its next section, and says in its clock that it has; an owner that acquires
// raises its clock to that of the releaser. So a section happens before another owner's if the clock that this has is
// above the section's number. The owner of --races is a node, because its processors share access rights
// (docs/internals/races.md); an owner can as well be a processor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/node_set.h"

namespace multigrain::races {

struct SectionId {
  uint16_t owner = 0;
  uint64_t number = 0;
  bool operator==(const SectionId&) const = default;
};

// A clock has an entry for each owner of the run, of which there are at most kMaxOwners.
inline constexpr size_t kMaxOwners = SmallNodeSet::kCapacity;
using Clock = std::array<uint64_t, kMaxOwners>;
using ClockView = std::span<const uint64_t>;

// Returns whether all of section `a` happens before every access of a section of another owner that has `clock`.
[[nodiscard]] inline bool happens_before(SectionId a, ClockView clock) {
  return clock[a.owner] > a.number;
}

// Returns whether neither of two sections of different owners happens before the other. Sections of one owner count as
// ordered: its own memory orders them, or nothing is known of it.
[[nodiscard]] inline bool are_concurrent(SectionId a, ClockView clock_of_a, SectionId b, ClockView clock_of_b) {
  return a.owner != b.owner && !happens_before(a, clock_of_b) && !happens_before(b, clock_of_a);
}

// Raises each entry of a clock to that of another one.
inline void raise(std::span<uint64_t> clock, ClockView other) {
  for (size_t i = 0; i < clock.size() && i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace multigrain::races
