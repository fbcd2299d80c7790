// A calendar knows when a resource that does one thing at a time is busy, in virtual time: a link, or a node's protocol
// handler.
//
// The time from which the resource is free would do if requests came in the order of their virtual times. They do not
// quite, because processors' clocks differ while they run. So the calendar keeps the busy intervals, and a request
// takes the first gap that is long enough, even if requests that came earlier were for later times.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace multigrain {

// It is a value without pointers, so it can be in shared memory; a zeroed one is empty. It is not synchronised.
class Calendar {
 public:
  // Returns the begin of the first gap of `length` from `from` on.
  [[nodiscard]] Nanoseconds gap(Nanoseconds from, Nanoseconds length) const;
  // Marks [begin, begin + length) as busy, whatever it was before.
  void occupy(Nanoseconds begin, Nanoseconds length);
  // Finds the gap and marks it as busy. Returns its begin.
  Nanoseconds reserve(Nanoseconds from, Nanoseconds length) {
    const Nanoseconds begin = gap(from, length);
    occupy(begin, length);
    return begin;
  }
  [[nodiscard]] size_t intervals() const { return count_; }

 private:
  // If there are more intervals, the oldest is dropped: by then no request is for a time before it.
  static constexpr size_t kMost = 128;
  struct Busy {
    Nanoseconds begin;
    Nanoseconds end;
  };
  // The intervals are sorted, and no two touch.
  std::array<Busy, kMost> busy_{};
  size_t count_ = 0;
};

}  // namespace multigrain
