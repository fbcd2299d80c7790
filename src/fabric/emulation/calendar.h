// A calendar knows when a resource that does one thing at a time is busy, in virtual time: a link, or a node's protocol
// handler.
//
// The time from which the resource is free would do if requests came in the order of their virtual times. They do not
// quite, because processors' clocks differ while they run. So the calendar keeps the busy intervals, and a request
// takes the first gap that is long enough, even if requests that came earlier were for later times. Work of which nobody
// knows how long it takes until it is done takes what is free, and goes on after what is not.
//
// It keeps a bounded number of intervals, and counts those that it forgets. Forgetting does no harm as long as no request
// is for a time that it has forgotten, which it can say, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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
  // Takes `length` of the time that is free from `from` on, in as many parts as there are gaps, and marks it as busy.
  // Returns the end of the last part; with a length of 0, the first moment that is free.
  Nanoseconds take(Nanoseconds from, Nanoseconds length);
  [[nodiscard]] size_t intervals() const { return count_; }
  // Returns how many intervals have been forgotten.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_; }
  // Returns whether everything is known that was marked as busy from `from` on.
  [[nodiscard]] bool remembers(Nanoseconds from) const { return from >= forgotten_until_; }

 private:
  void forget(Nanoseconds end);

  // If there are more intervals, the oldest is dropped.
  static constexpr size_t kMost = 128;
  struct Busy {
    Nanoseconds begin;
    Nanoseconds end;
  };
  // The intervals are sorted, and no two touch.
  std::array<Busy, kMost> busy_{};
  size_t count_ = 0;
  uint64_t forgotten_ = 0;
  Nanoseconds forgotten_until_ = 0;
};

}  // namespace multigrain
