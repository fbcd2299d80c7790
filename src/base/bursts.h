// Bursts of ticks, for recorders that sample (--sample).
//
// The header is freestanding, because the runtime of mgtrace's recorder is linked into any C program.
#pragma once

#include <cstdint>

namespace multigrain {

// Which ticks of all clocks are in bursts: one burst in each interval. Where in the interval it is is drawn by the interval's
// number, so that a program's loops cannot keep step with the bursts, and all threads have theirs at the same time.
struct Bursts {
  uint64_t burst;
  uint64_t interval;  // 0: all ticks count as one burst

  [[nodiscard]] constexpr bool is_on() const { return interval != 0; }
  [[nodiscard]] constexpr uint64_t begin_of(uint64_t number) const {
    uint64_t draw = (number + 1) * 0x9e3779b97f4a7c15u;  // splitmix64
    draw = (draw ^ draw >> 30) * 0xbf58476d1ce4e5b9u;
    draw = (draw ^ draw >> 27) * 0x94d049bb133111ebu;
    draw ^= draw >> 31;
    return number * interval + draw % (interval - burst + 1);
  }
  // Returns how many ticks before this one are in bursts.
  [[nodiscard]] constexpr uint64_t before(uint64_t tick) const {
    if (interval == 0) return tick;
    const uint64_t number = tick / interval;
    const uint64_t begin = begin_of(number);
    const uint64_t within = tick <= begin ? 0 : tick - begin < burst ? tick - begin : burst;
    return number * burst + within;
  }
  [[nodiscard]] constexpr bool contains(uint64_t tick) const { return before(tick + 1) != before(tick); }
};

}  // namespace multigrain
