// Accesses that were seen, exact to the byte, and the search among them for those that race.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "races/sections.h"

namespace multigrain::races {

// One access by an owner. Addresses are in the shared region, as bytes from its start.
struct Access {
  uint64_t address = 0;
  uint64_t pc = 0;  // the instruction; 0: not known, since the access was seen in a diff
  uint64_t caller =
      0;  // if the instruction is in a library: where the call returns to in the program; 0: none is known
  SectionId section;
  uint32_t bytes = 0;
  uint32_t processor = 0;  // its number in the machine; kNoProcessor: a thread that is none, or not known
  bool is_write = false;

  static constexpr uint32_t kNoProcessor = ~0u;
  [[nodiscard]] bool overlaps(const Access& other) const {
    return address < other.address + other.bytes && other.address < address + bytes;
  }
  bool operator==(const Access&) const = default;
};

// Keeps the latest accesses, as many as it has room for. An access is kept for each line of 64 bytes that it touches.
class AccessWindow {
 public:
  static constexpr uint64_t kLine = 64;
  // So many accesses of a line are looked at, from the latest on, for each new one.
  static constexpr unsigned kMostLookedAt = 128;

  explicit AccessWindow(size_t capacity);

  // Adds an access, and calls race(earlier) for each one that it races with: they overlap, one of them writes, and their
  // sections are concurrent. If both touch several lines, the pair is told once for each.
  template <typename Race>
  void add(const Access& access, const SectionTable& sections, Race&& race);

  // Returns how many accesses had to make room for others while a later access could still have raced with them.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_; }

 private:
  struct Kept {
    Access access;
    uint64_t line = 0;
    uint64_t older = 0;  // the number of the access before it in the chain of its line; 0: none
  };
  [[nodiscard]] size_t head_of(uint64_t line) const { return (line * 0x9e3779b97f4a7c15u) >> shift_; }
  [[nodiscard]] Kept& kept(uint64_t number) { return kept_[number % kept_.size()]; }
  // Returns whether the access with this number has not been overwritten.
  [[nodiscard]] bool is_kept(uint64_t number) const { return number != 0 && number + kept_.size() >= next_; }
  template <typename Race>
  void add_to_line(const Access& access, uint64_t line, const SectionTable& sections, Race& race);

  unsigned shift_ = 0;
  std::vector<Kept> kept_;
  std::vector<uint64_t> heads_;
  uint64_t next_ = 1;  // accesses have numbers from 1 on
  uint64_t forgotten_ = 0;
};

template <typename Race>
void AccessWindow::add(const Access& access, const SectionTable& sections, Race&& race) {
  if (access.bytes == 0) return;
  const uint64_t last = (access.address + access.bytes - 1) / kLine;
  for (uint64_t line = access.address / kLine; line <= last; ++line) add_to_line(access, line, sections, race);
}

template <typename Race>
void AccessWindow::add_to_line(const Access& access, uint64_t line, const SectionTable& sections, Race& race) {
  uint64_t* link = &heads_[head_of(line)];
  for (unsigned looked_at = 0; looked_at < kMostLookedAt && is_kept(*link); ++looked_at) {
    Kept& other = kept(*link);
    if (other.access.section.owner != access.section.owner && sections.is_over_for_all(other.access.section)) {
      *link = other.older;
      continue;
    }
    if (other.line == line) {
      if (other.access == access) return;
      if ((access.is_write || other.access.is_write) && access.overlaps(other.access) &&
          sections.are_concurrent(access.section, other.access.section))
        race(static_cast<const Access&>(other.access));
    }
    link = &other.older;
  }
  Kept& slot = kept(next_);
  if (slot.access.bytes != 0 && !sections.is_over_for_all(slot.access.section)) ++forgotten_;
  uint64_t& head = heads_[head_of(line)];
  slot = {.access = access, .line = line, .older = head};
  head = next_++;
}

}  // namespace multigrain::races
