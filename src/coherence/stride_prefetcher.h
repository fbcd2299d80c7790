// This predicts the pages of a processor's next faults, so that a page protocol can bring them before the processor
// gets there.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "base/ids.h"

namespace multigrain {

// This is a reference prediction table for a processor that goes through memory with a constant stride. It has a few
// entries, since programs walk several arrays at once, and down the columns of matrices.
class StridePrefetcher {
 public:
  struct Prediction {
    int64_t from = 0;    // the first page minus the stride
    int64_t stride = 0;  // pages
    uint32_t count = 0;
  };

  // Returns which pages to ask for after `page`, on which the processor has faulted. There are none until a fault is
  // where a stride predicted it; then there are two, and twice as many each time that this happens again, up to
  // `limit`.
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
    // Take the entry whose stride may have changed, or else the oldest.
    const int64_t stride = nearest != nullptr ? here - nearest->last : 0;
    Entry& taken = nearest != nullptr ? *nearest : entries_[next_++ % entries_.size()];
    taken = {.last = here, .stride = stride, .expected = here + stride, .depth = 0, .is_write = is_write};
    return {};
  }

  // The processor must wait for `page`, which is on its way. If the page was prefetched, and the processor is past the
  // middle of the pages that were prefetched with it, then the processor is faster than the network, and as many pages
  // more are due now. Otherwise the network would have nothing to do for a round trip whenever the processor gets to
  // the end of them.
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
