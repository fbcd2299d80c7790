// Where a processor's next faults will be: what page protocols bring ahead of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "base/ids.h"

namespace multigrain {

// Where a processor that goes through memory with a constant stride will fault next: a reference prediction table of a
// few entries, since programs walk several arrays at once, and down the columns of matrices.
class Streams {
 public:
  struct Ahead {
    int64_t from = 0;    // the page before the first, by the stride
    int64_t stride = 0;  // pages
    uint32_t count = 0;
  };

  // Which pages after `page`, on which the processor has faulted, to ask for: none until it has turned up twice where
  // it was expected, then two, four and so on up to `limit`, each time that it does so again.
  Ahead ahead(PageId page, bool is_write, uint32_t limit) {
    const auto here = static_cast<int64_t>(page.value);
    Stream* nearest = nullptr;
    for (Stream& stream : streams_) {
      if (stream.is_write != is_write) continue;
      if (stream.expected == here && stream.stride != 0) {
        stream.window = stream.window == 0 ? std::min(2u, limit) : std::min(2 * stream.window, limit);
        stream.last = here;
        stream.expected = here + stream.stride * (static_cast<int64_t>(stream.window) + 1);
        return {here, stream.stride, stream.window};
      }
      const int64_t distance = std::abs(here - stream.last);
      if (distance != 0 && distance <= kLongestStride &&
          (nearest == nullptr || distance < std::abs(here - nearest->last)))
        nearest = &stream;
    }
    // One that may have changed its stride, or else the oldest.
    const int64_t stride = nearest != nullptr ? here - nearest->last : 0;
    Stream& taken = nearest != nullptr ? *nearest : streams_[next_++ % streams_.size()];
    taken = {.last = here, .stride = stride, .expected = here + stride, .window = 0, .is_write = is_write};
    return {};
  }

  // The processor must wait for `page`, which is on its way. If it was asked for ahead, and the processor is past the
  // middle of what was, it is faster than the network, and the next as many pages are due now: else, whenever it gets
  // to the end, the network would have nothing to do for a round trip.
  Ahead ahead_of_wait(PageId page, bool is_write) {
    const auto here = static_cast<int64_t>(page.value);
    for (Stream& stream : streams_) {
      if (stream.is_write != is_write || stream.window == 0) continue;
      const int64_t distance = here - stream.last;
      const auto window = static_cast<int64_t>(stream.window);
      if (distance % stream.stride != 0) continue;
      const int64_t steps = distance / stream.stride;
      if (2 * steps <= window || steps > window) continue;
      stream.last = stream.expected - stream.stride;
      stream.expected += stream.stride * window;
      return {stream.last, stream.stride, stream.window};
    }
    return {};
  }

 private:
  static constexpr int64_t kLongestStride = 64;

  struct Stream {
    int64_t last = -1 - kLongestStride;
    int64_t stride = 0;
    int64_t expected = -1;
    uint32_t window = 0;
    bool is_write = false;
  };
  std::array<Stream, 4> streams_{};
  uint32_t next_ = 0;
};

}  // namespace multigrain
