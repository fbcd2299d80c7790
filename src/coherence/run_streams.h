// Finds the places where a processor goes through memory page by page: what its faults tell of the pages that it will
// need next.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/ids.h"

namespace multigrain {

// A few streams, since programs go through several arrays at once. A stream is where the processor will fault next if it
// goes on, and how many pages it has last got at once. For one processor; a value that is all zero at the beginning.
class RunStreams {
 public:
  // The processor has faulted on `page`. Returns how many pages behind it are due: none unless a stream leads there, then
  // twice as many as the last time, up to `most`.
  uint32_t continued_at(PageId page, uint32_t most) {
    for (Stream& stream : streams_) {
      if (stream.next_plus_one != page.value + 1) continue;
      const uint32_t due = std::min(2 * stream.depth, most);
      stream = {};
      return due;
    }
    return 0;
  }
  // The fault was answered by `depth` pages (with its own), and if the processor goes on it will fault on `next`.
  void expect(PageId next, uint32_t depth) {
    Stream* taken = &streams_[oldest_ % streams_.size()];
    for (Stream& stream : streams_)
      if (stream.next_plus_one == 0) taken = &stream;
    if (taken->next_plus_one != 0) ++oldest_;
    *taken = {.next_plus_one = next.value + 1, .depth = depth};
  }

 private:
  struct Stream {
    uint64_t next_plus_one = 0;
    uint32_t depth = 0;
  };
  std::array<Stream, 8> streams_{};
  uint32_t oldest_ = 0;
};

}  // namespace multigrain
