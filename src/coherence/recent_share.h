// How often something was so of late, as histories of line protocols keep it (run_history.h, dszoom/update_history.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace multigrain {

// A value that moves an eighth of the way each time. All zero bytes are its initial state. A hint: threads change it at the same time
// and lose each other's changes. Async-signal-safe.
class RecentShare {
 public:
  // From -127, if it was never so of late, to 127, if it always was. 0: nothing is known.
  [[nodiscard]] int value() const { return value_.load(std::memory_order_relaxed); }
  static constexpr int kTwoThirds = 42;
  static constexpr int kFourth = -64;

  void was(bool so) {
    constexpr int kAlways = 127;
    const int now = value();
    const int to = so ? kAlways : -kAlways;
    // At least 1, so that it comes to its end.
    value_.store(static_cast<int8_t>(now + (to - now + (so ? 7 : -7)) / 8), std::memory_order_relaxed);
  }

 private:
  std::atomic<int8_t> value_;
};

}  // namespace multigrain
