#include "fabric/emulation/calendar.h"

#include <algorithm>

namespace multigrain {

Nanoseconds Calendar::gap(Nanoseconds from, Nanoseconds length) const {
  const auto end = busy_.begin() + static_cast<ptrdiff_t>(count_);
  auto next =
      std::lower_bound(busy_.begin(), end, from, [](const Busy& busy, Nanoseconds at) { return busy.end <= at; });
  Nanoseconds begin = from;
  for (; next != end && next->begin < begin + length; ++next) begin = std::max(begin, next->end);
  return begin;
}

Nanoseconds Calendar::take(Nanoseconds from, Nanoseconds length) {
  const Nanoseconds begin = gap(from, 0);
  const auto last = busy_.begin() + static_cast<ptrdiff_t>(count_);
  auto next =
      std::lower_bound(busy_.begin(), last, begin, [](const Busy& busy, Nanoseconds at) { return busy.end <= at; });
  Nanoseconds end = begin + length;
  for (; next != last && next->begin < end; ++next) end += next->end - next->begin;
  // What lies between is busy now, whoever took it.
  occupy(begin, end - begin);
  return end;
}

void Calendar::forget(Nanoseconds end) {
  ++forgotten_;
  forgotten_until_ = std::max(forgotten_until_, end);
}

void Calendar::occupy(Nanoseconds begin, Nanoseconds length) {
  if (length == 0) return;
  Nanoseconds end = begin + length;
  // [first, last) are the intervals that touch the new one, with which they become one.
  auto* const first = std::lower_bound(busy_.data(), busy_.data() + count_, begin,
                                       [](const Busy& busy, Nanoseconds at) { return busy.end < at; });
  auto* last = first;
  for (; last != busy_.data() + count_ && last->begin <= end; ++last) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
  }
  if (first != last) {
    *first = {begin, end};
    std::copy(last, busy_.data() + count_, first + 1);
    count_ -= static_cast<size_t>(last - first) - 1;
    return;
  }
  if (count_ < kMost) {
    std::copy_backward(first, busy_.data() + count_, busy_.data() + count_ + 1);
    *first = {begin, end};
    ++count_;
    return;
  }
  if (first == busy_.data()) {
    forget(end);
    return;
  }
  forget(busy_[0].end);
  std::copy(busy_.data() + 1, first, busy_.data());
  *(first - 1) = {begin, end};
}

}  // namespace multigrain
