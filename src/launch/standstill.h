// Notices that every processor of a run has slept in Multigrain for a while, so that mgrun can report a deadlock.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"
#include "report/node_snapshot.h"

namespace multigrain {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // `limit` is how long the processors must sleep; 0: no sleep is long enough.
  explicit Standstill(Nanoseconds limit) : limit_(limit) {}

  // Returns when the caller should call see() next, at the latest.
  [[nodiscard]] std::optional<Clock::time_point> next() const;
  // Takes the state at the time `now`. Returns for how long no processor has run, once each time that this becomes as
  // long as the limit.
  std::optional<Nanoseconds> see(const Stillness& now_is, Clock::time_point now);

 private:
  const Nanoseconds limit_;
  Stillness last_;
  Clock::time_point since_{};
  Clock::time_point seen_{};
  bool told_ = false;
};

}  // namespace multigrain
