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
class StridePrefetcher {
 public:
  struct Prediction {
    int64_t from = 0;    // the page before the first, by the stride
    int64_t stride = 0;  // pages
    uint32_t count = 0;
  };

  // Which pages after `page`, on which the processor has faulted, to ask for: none until it has turned up twice where
  // it was expected, then two, four and so on up to `limit`, each time that it does so again.
  Prediction predict(PageId page, bool is_write, uint32_t limit) {
    const auto here = static_cast<int64_t>(page.value);
    Entry* nearest = nullptr;
    for (Entry& entry : entries_) {
      if (entry.is_write != is_write) continue;
      if (entry.expected == here && entry.stride != 0) {
        entry.depth = entry.depth == 0 ? std::min(2u, limit) : std::min(2 * entry.depth, limit);
        entry.last = here;
        entry.expected = here + entry.stride * (static_cast<int64_t>(entry.depth) + 1);
        return {here, entry.stride, entry.depth};
      }
      const int64_t distance = std::abs(here - entry.last);
      if (distance != 0 && distance <= kLongestStride &&
          (nearest == nullptr || distance < std::abs(here - nearest->last)))
        nearest = &entry;
    }
    // One that may have changed its stride, or else the oldest.
    const int64_t stride = nearest != nullptr ? here - nearest->last : 0;
    Entry& taken = nearest != nullptr ? *nearest : entries_[next_++ % entries_.size()];
    taken = {.last = here, .stride = stride, .expected = here + stride, .depth = 0, .is_write = is_write};
    return {};
  }

  // The processor must wait for `page`, which is on its way. If it was asked for ahead, and the processor is past the
  // middle of what was, it is faster than the network, and the next as many pages are due now: else, whenever it gets
  // to the end, the network would have nothing to do for a round trip.
  Prediction predict_while_waiting(PageId page, bool is_write) {
    const auto here = static_cast<int64_t>(page.value);
    for (Entry& entry : entries_) {
      if (entry.is_write != is_write || entry.depth == 0) continue;
      const int64_t distance = here - entry.last;
      const auto depth = static_cast<int64_t>(entry.depth);
      if (distance % entry.stride != 0) continue;
      const int64_t steps = distance / entry.stride;
      if (2 * steps <= depth || steps > depth) continue;
      entry.last = entry.expected - entry.stride;
      entry.expected += entry.stride * depth;
      return {entry.last, entry.stride, entry.depth};
    }
    return {};
  }

 private:
  static constexpr int64_t kLongestStride = 64;

  struct Entry {
    int64_t last = -1 - kLongestStride;
    int64_t stride = 0;
    int64_t expected = -1;
    uint32_t depth = 0;
    bool is_write = false;
  };
  std::array<Entry, 4> entries_{};
  uint32_t next_ = 0;
};

}  // namespace multigrain
