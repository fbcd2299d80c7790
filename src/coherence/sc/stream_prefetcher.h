// This predicts the pages of a thread's next faults, so that a node can prefetch them.
//
// Prefetched pages are not given to threads before a thread touches the first of them. That fault, which needs no
// message, says that the thread has got there, and is the time to prefetch the next pages. So as many pages are always
// under way as the thread has in front of it, and a thread that stops or turns leaves one prefetch depth of pages
// unused, not two.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "base/ids.h"

namespace multigrain::sc {

// This is a reference prediction table for one thread. It has a few entries, since programs walk several arrays at
// once, and down the columns of matrices.
class StreamPrefetcher {
 public:
  // These are the pages from + stride, from + 2 * stride, and so on.
  struct Prediction {
    int64_t from = 0;
    int64_t stride = 0;
    uint32_t count = 0;
  };

  // Returns what to prefetch when the thread has faulted on `page`. There is nothing to prefetch until a fault is where
  // a stride predicted it. Then there are two pages, four and so on up to `limit`, with at most twice `limit` in front
  // of the thread.
  Prediction predict(PageId page, bool is_write, uint32_t limit) {
    const auto here = static_cast<int64_t>(page.value);
    Stream* nearest = nullptr;
    for (Stream& stream : streams_) {
      if (stream.is_write != is_write) continue;
      if (stream.stride != 0 && stream.has(here)) return go_on(stream, here, limit);
      const int64_t distance = std::abs(here - stream.last);
      if (distance != 0 && distance <= kLongestStride &&
          (nearest == nullptr || distance < std::abs(here - nearest->last)))
        nearest = &stream;
    }
    // Take the stream that may have changed its stride, or else the oldest.
    const int64_t stride = nearest != nullptr ? here - nearest->last : 0;
    Stream& taken = nearest != nullptr ? *nearest : streams_[next_++ % streams_.size()];
    taken = {.last = here, .stride = stride, .asked = here, .depth = 0, .is_write = is_write};
    return {};
  }

 private:
  static constexpr int64_t kLongestStride = 64;

  struct Stream {
    int64_t last = -1 - kLongestStride;  // the page of the last fault
    int64_t stride = 0;                  // pages; 0: not known
    int64_t asked = -1;                  // the last page that was prefetched, or `last`
    uint32_t depth = 0;                  // how many pages were prefetched last
    bool is_write = false;

    // Returns whether the page was prefetched by this stream, or follows the last page that was.
    [[nodiscard]] bool has(int64_t page) const {
      const int64_t distance = page - last;
      return distance % stride == 0 && distance / stride >= 1 && distance / stride <= (asked - last) / stride + 1;
    }
  };

  static Prediction go_on(Stream& stream, int64_t here, uint32_t limit) {
    stream.last = here;
    if ((here - stream.asked) / stream.stride > 0) stream.asked = here;
    stream.depth = std::min(stream.depth == 0 ? 2 : 2 * stream.depth, limit);
    const int64_t in_front = (stream.asked - here) / stream.stride;
    const auto room = std::max<int64_t>(2 * int64_t{limit} - in_front, 0);
    const Prediction prediction{stream.asked, stream.stride,
                                static_cast<uint32_t>(std::min<int64_t>(stream.depth, room))};
    stream.asked += stream.stride * static_cast<int64_t>(prediction.count);
    return prediction;
  }

  std::array<Stream, 4> streams_{};
  uint32_t next_ = 0;
};

}  // namespace multigrain::sc
