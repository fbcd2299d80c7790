// Notices that no processor of a run has got anywhere for a while, so that mgrun can report a deadlock, or a processor for
// which the others wait in vain.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"
#include "report/node_snapshot.h"

namespace multigrain {

class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // For how long no processor has got anywhere.
  struct Stood {
    Nanoseconds lasted = 0;
    bool outside = false;  // some were in no call of Multigrain; otherwise all slept there
  };

  // `limit` is how long that must last; 0: no time is long enough.
  explicit Standstill(Nanoseconds limit) : limit_(limit) {}

  // Returns when the caller should call see() next, at the latest.
  [[nodiscard]] std::optional<Clock::time_point> next() const;
  // Takes the state at the time `now`. Returns for how long no processor has got anywhere, once each time that this becomes
  // as long as the limit; with processors outside of Multigrain, once in a run, because most of those only compute for long.
  std::optional<Stood> see(const Stillness& now_is, Clock::time_point now);

 private:
  const Nanoseconds limit_;
  Stillness last_;
  Clock::time_point since_{};
  Clock::time_point seen_{};
  bool told_ = false;
  bool told_of_outside_ = false;
};

}  // namespace multigrain
