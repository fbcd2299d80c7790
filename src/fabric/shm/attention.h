// Says how long the service thread of a node may sleep at a time while senders leave its messages to processors that
// compute (doorbell.h, "attended").
//
// Processors whose code polls take a message within microseconds, and cheaper than the service thread could: waking it
// costs the sender a system call, and a processor its core. But not all code polls, so the thread looks by itself at
// intervals. They become longer as long as processors take the messages, short again when one was left to the thread,
// and end when messages are left to it again and again, or when none come.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace multigrain {

// For one service thread; a value that is all zero at the beginning.
class Attention {
 public:
  static constexpr Nanoseconds kShortest = 50'000;
  static constexpr Nanoseconds kLongest = 1'000'000;
  // So many intervals without a message, and so many with messages that no processor has taken, end the attention.
  static constexpr unsigned kMostIdle = 4;
  static constexpr unsigned kMostLate = 3;

  // Returns how long the service thread may sleep before it looks again; 0: until a sender wakes it. Called before each of
  // its sleeps. `has_served` says whether it has handled messages since the last one, `others_have` whether
  // other threads have, and `computing` how many processors run code that polls.
  Nanoseconds next(bool has_served, bool others_have, unsigned computing) {
    if (computing == 0) return end();
    if (interval_ == 0) {
      if (!has_served) return 0;
      if (refusals_ != 0) {
        --refusals_;
        return 0;
      }
      interval_ = kShortest;
      return interval_;
    }
    if (has_served && !others_have) {
      idle_ = 0;
      interval_ = kShortest;
      if (++late_ < kMostLate) return interval_;
      // Messages that are served at once until the next attempt: twice as many each time.
      penalty_ = std::min(2 * penalty_ + kFewestRefusals, kMostRefusals);
      refusals_ = penalty_;
      return end();
    }
    if (others_have) {
      idle_ = 0;
      late_ = 0;
      penalty_ = 0;
      interval_ = std::min(2 * interval_, kLongest);
      return interval_;
    }
    return ++idle_ < kMostIdle ? interval_ : end();
  }

 private:
  static constexpr unsigned kFewestRefusals = 8;
  static constexpr unsigned kMostRefusals = 4096;

  Nanoseconds end() {
    idle_ = 0;
    late_ = 0;
    interval_ = 0;
    return 0;
  }

  Nanoseconds interval_ = 0;
  unsigned idle_ = 0;
  unsigned late_ = 0;
  unsigned penalty_ = 0;
  unsigned refusals_ = 0;
};

}  // namespace multigrain
