// When an access was made, as the detector of compiled calls (mgrun --check-races) counts time: FastTrack's epochs and vector
// clocks [Flanagan and Freund, "FastTrack: Efficient and Precise Dynamic Race Detection", PLDI 2009].
//
// An *owner* is a thread of the program that has a clock: a processor, by its number, or a thread beside processors, with a
// number behind theirs. Its time is a number that grows whenever it releases. A *clock* has, for each owner, the latest time
// of that owner that is known to be over, or for the clock's own owner, its time now. An *epoch* is one owner at one time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace multigrain::races {

class Epoch {
 public:
  static constexpr unsigned kTimeBits = 52;
  static constexpr unsigned kMaxOwners = 255;

  constexpr Epoch() = default;  // no access
  constexpr Epoch(unsigned owner, uint64_t time, bool is_atomic = false)
      : bits_(uint64_t{is_atomic} << 60 | uint64_t{owner} << kTimeBits | time) {}
  static constexpr Epoch of_bits(uint64_t bits) {
    Epoch epoch;
    epoch.bits_ = bits;
    return epoch;
  }

  // The three highest bits are 0, for whoever keeps epochs among other words.
  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }
  // Whether there is an access: times begin at 1.
  explicit constexpr operator bool() const { return bits_ != 0; }
  [[nodiscard]] constexpr unsigned owner() const { return static_cast<uint8_t>(bits_ >> kTimeBits); }
  [[nodiscard]] constexpr uint64_t time() const { return bits_ & ((uint64_t{1} << kTimeBits) - 1); }
  // Whether the access was an atomic operation: two of these never race.
  [[nodiscard]] constexpr bool is_atomic() const { return (bits_ >> 60 & 1) != 0; }
  friend constexpr bool operator==(Epoch, Epoch) = default;

 private:
  uint64_t bits_ = 0;
};

using ClockView = std::span<const uint64_t>;

// Returns whether the access happens before everything that an owner with this clock does now.
[[nodiscard]] inline bool happens_before(Epoch access, ClockView clock) {
  return access.time() <= clock[access.owner()];
}

// `into` learns what `from` knows.
inline void join(std::span<uint64_t> into, ClockView from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace multigrain::races
