// Notices that every processor of a run has slept in Multigrain for a while.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"
#include "report/node_snapshot.h"

namespace multigrain {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // `limit`: how long is a while; 0: for ever.
  explicit Standstill(Nanoseconds limit) : limit_(limit) {}

  // When see() should be called next, at the latest.
  [[nodiscard]] std::optional<Clock::time_point> next() const;
  // What holds now. Returns for how long nobody has moved, once each time that this becomes as long as the limit.
  std::optional<Nanoseconds> see(const Stillness& now_is, Clock::time_point now);

 private:
  const Nanoseconds limit_;
  Stillness last_;
  Clock::time_point since_{};
  Clock::time_point seen_{};
  bool told_ = false;
};

}  // namespace multigrain
