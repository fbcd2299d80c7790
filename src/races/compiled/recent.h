// What an owner has accessed at its time now and need not tell again (location.h, L3), by the bytes of lines of 64. Code that was
// compiled for the detector looks here without a call (pass/known.cpp), so the layout is a part of abi.h.
//
//  K1  A byte is noted as written, or as read, if the owner has written it, or read or written it, at its time now, and has told
//      so; or if nobody looks at accesses of it.
//  K2  What the owner itself takes away from what is known of the byte takes the note away, too: to allocate or to free it, and
//      an atomic operation, whose record replaces a plain one. What others take away is none of the note's business: they come
//      behind the access, so the owner has released since and has a later time, or a race was told.
//  K3  A table is its owner's thread's alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "races/compiled/abi.h"

namespace multigrain::races {

class Recent {
 public:
  static constexpr uint64_t kLineBytes = 64;
  using Line = mg_race_recent_line;

  // The bits of the bytes from `first` on, of a line: 0 < bytes <= 64 - first.
  [[nodiscard]] static constexpr uint64_t bits(unsigned first, uint64_t bytes) {
    return ~uint64_t{0} >> (kLineBytes - bytes) << first;
  }

  // `line` is the address of a line's first byte.
  [[nodiscard]] bool knows(uint64_t line, uint64_t bits, bool is_write) const {
    const Line& entry = lines_[index_of(line)];
    return entry.address == line && ((is_write ? entry.written : entry.read) & bits) == bits;
  }
  void note(uint64_t line, uint64_t bits, bool is_write) { note(line, {.read = bits, .written = is_write ? bits : 0}); }
  // Bits of bytes; what is written counts as read, too.
  struct Bytes {
    uint64_t read = 0;
    uint64_t written = 0;
  };
  void note(uint64_t line, const Bytes& bytes) {
    const unsigned index = index_of(line);
    Line& entry = lines_[index];
    if (entry.address != line) {
      if (entry.address == 0) used_[used_count_++] = static_cast<uint16_t>(index);
      entry = {.read = 0, .address = line, .written = 0, .zero = 0};
    }
    entry.read |= bytes.read | bytes.written;
    entry.written |= bytes.written;
  }

  // Forgets everything.
  void clear() {
    for (unsigned i = 0; i < used_count_; ++i) lines_[used_[i]].address = 0;
    used_count_ = 0;
  }
  // Forgets the lines that have one of the bytes.
  void forget(uint64_t address, uint64_t bytes) {
    if (bytes >= MG_RACES_RECENT_LINES * kLineBytes) return clear();
    for (uint64_t line = address & ~(kLineBytes - 1); line < address + bytes; line += kLineBytes)
      if (Line& entry = lines_[index_of(line)]; entry.address == line) entry.read = entry.written = 0;
  }

  [[nodiscard]] const Line* lines() const { return lines_.data(); }

 private:
  [[nodiscard]] static unsigned index_of(uint64_t line) {
    const uint64_t number = line / kLineBytes;
    return static_cast<unsigned>((number ^ number >> MG_RACES_RECENT_FOLD) % MG_RACES_RECENT_LINES);
  }

  std::array<Line, MG_RACES_RECENT_LINES> lines_{};
  // Those with an address.
  std::array<uint16_t, MG_RACES_RECENT_LINES> used_{};
  unsigned used_count_ = 0;
};

}  // namespace multigrain::races
