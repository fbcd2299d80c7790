// When a resource that does one thing at a time is busy, in virtual time: a link, a node's protocol handler.
//
// A queue's "free from" would do if requests came in the order of their virtual times. They do not, quite: processors'
// clocks differ while they run. So the busy intervals are kept, and a request takes the first gap that is long enough,
// wherever requests that were made earlier but are for later have been put.
#pragma once

#include <array>
#include <cstddef>

#include "base/clock.h"

namespace multigrain {

// A value without pointers, usable in shared memory; zero is empty. Not synchronised.
class Calendar {
 public:
  // The begin of the first gap of `length` from `from` on.
  [[nodiscard]] Nanoseconds gap(Nanoseconds from, Nanoseconds length) const;
  // Marks [begin, begin + length) as busy, whatever it was before.
  void occupy(Nanoseconds begin, Nanoseconds length);
  // Both. Returns the begin.
  Nanoseconds reserve(Nanoseconds from, Nanoseconds length) {
    const Nanoseconds begin = gap(from, length);
    occupy(begin, length);
    return begin;
  }
  [[nodiscard]] size_t intervals() const { return count_; }

 private:
  // The oldest is forgotten when there are more: by then no request is for a time before it.
  static constexpr size_t kMost = 128;
  struct Busy {
    Nanoseconds begin;
    Nanoseconds end;
  };
  // Sorted, apart from each other.
  std::array<Busy, kMost> busy_{};
  size_t count_ = 0;
};

}  // namespace multigrain
