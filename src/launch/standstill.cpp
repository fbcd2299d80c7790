#include "launch/standstill.h"

#include <algorithm>
#include <utility>

namespace multigrain {
namespace {

std::chrono::nanoseconds interval(Nanoseconds limit) {
  return std::clamp<std::chrono::nanoseconds>(std::chrono::nanoseconds(limit / 8), std::chrono::milliseconds(20),
                                              std::chrono::seconds(1));
}

}  // namespace

std::optional<Standstill::Clock::time_point> Standstill::next() const {
  if (limit_ == 0) return std::nullopt;
  return seen_ + interval(limit_);
}

std::optional<Standstill::Stood> Standstill::see(const Stillness& now_is, Clock::time_point now) {
  if (limit_ == 0) return std::nullopt;
  // If this process was itself stopped, it has not seen that no processor ran meanwhile.
  const bool was_away = now - seen_ > 2 * interval(limit_) + std::chrono::seconds(1);
  seen_ = now;
  if (was_away || !now_is.still || !now_is.anyone || now_is != last_) {
    last_ = now_is;
    since_ = now;
    told_ = false;
    return std::nullopt;
  }
  const std::chrono::nanoseconds still = now - since_;
  if (told_ || still < std::chrono::nanoseconds(limit_)) return std::nullopt;
  told_ = true;
  if (now_is.outside && std::exchange(told_of_outside_, true)) return std::nullopt;
  return Stood{.lasted = static_cast<Nanoseconds>(still.count()), .outside = now_is.outside};
}

}  // namespace multigrain
