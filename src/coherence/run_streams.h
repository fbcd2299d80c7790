// Finds the places where a processor goes through memory with a constant stride: what its faults tell of the pages that it
// will need next.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#include "base/ids.h"

namespace multigrain {

// Returns the page that is `steps` times `stride` pages behind `first`; one outside the region if there is none.
constexpr PageId page_at_stride(PageId first, int64_t stride, uint32_t steps) {
  return PageId(first.value + static_cast<uint64_t>(stride * static_cast<int64_t>(steps)));
}

// A few streams, since programs go through several arrays at once. A stream is where the processor will fault next if it
// goes on, and how many pages it has last got at once. Two faults on pages one after the other make a stream, or three that
// are as far from each other, at most kLongestStride pages. For one processor; a value that is all zero at the beginning.
class RunStreams {
 public:
  static constexpr int64_t kLongestStride = 64;  // pages: the rows of a matrix of 32,768 doubles

  // What a fault belongs to, and what is due with it.
  struct Continued {
    int64_t stride = 1;   // pages
    uint32_t due = 0;     // so many pages behind that of the fault
    uint32_t length = 0;  // so many pages the stream has had before this fault; 0: the fault is at no stream
  };

  // The processor has faulted on `page`. If a stream leads there, twice as many pages are due as it got the last time, up to
  // `most`. expect() must follow.
  Continued continued_at(PageId page, uint32_t most) {
    const auto here = static_cast<int64_t>(page.value);
    for (Stream& stream : streams_) {
      if (stream.depth == 0 || stream.next != here) continue;
      const Continued found{stream.stride, std::min(2 * stream.depth, most), stream.length};
      stream = {};
      return found;
    }
    for (Guess& guess : guesses_) {
      if (guess.length == 0) continue;
      const bool is_behind = guess.end == here;
      if (!is_behind && (guess.stride == 0 || guess.last + guess.stride != here)) continue;
      const Continued found{is_behind ? 1 : guess.stride, std::min(2 * guess.length, most), guess.length};
      guess = {};
      return found;
    }
    return {};
  }

  // The fault on `page`, of which continued_at() said `at`, was answered by `count` pages, its own and those behind it at
  // the stream's stride.
  void expect(PageId page, const Continued& at, uint32_t count) {
    const auto here = static_cast<int64_t>(page.value);
    if (at.length != 0)
      *free_stream() = {
          .next = here + at.stride * count, .stride = at.stride, .depth = count, .length = at.length + count};
    else
      guesses_[next_guess_++ % guesses_.size()] = {
          .last = here, .end = here + count, .stride = stride_to(here), .length = count};
  }

 private:
  struct Stream {
    int64_t next = 0;
    int64_t stride = 0;
    uint32_t depth = 0;  // pages of the last fault; 0: this is no stream
    uint32_t length = 0;
  };
  // A fault at no stream. If one begins here, the next fault is behind its pages, or as far from it as it is from an
  // earlier one.
  struct Guess {
    int64_t last = 0;
    int64_t end = 0;
    int64_t stride = 0;   // 0: there was no other fault near it
    uint32_t length = 0;  // pages; 0: this is no guess
  };

  // How far `here` is from the nearest of the last faults at no stream; 0 if it is near none.
  [[nodiscard]] int64_t stride_to(int64_t here) const {
    int64_t stride = 0;
    for (const Guess& guess : guesses_) {
      if (guess.length == 0) continue;
      const int64_t distance = here - guess.last;
      if (distance != 0 && std::abs(distance) <= kLongestStride &&
          (stride == 0 || std::abs(distance) < std::abs(stride)))
        stride = distance;
    }
    return stride;
  }
  Stream* free_stream() {
    for (Stream& stream : streams_)
      if (stream.depth == 0) return &stream;
    return &streams_[next_stream_++ % streams_.size()];
  }

  std::array<Stream, 8> streams_{};
  std::array<Guess, 16> guesses_{};
  uint32_t next_stream_ = 0;
  uint32_t next_guess_ = 0;
};

}  // namespace multigrain
