#include "profile/profile.h"

#include <sched.h>

#include <algorithm>
#include <numeric>

namespace multigrain {
namespace {

template <size_t N>
void subtract(std::array<uint64_t, N>& from, const std::array<uint64_t, N>& what) {
  // The difference is never negative: in virtual time a snapshot may be of a moment just before its owner's
  // last time stamp.
  std::transform(from.begin(), from.end(), what.begin(), from.begin(), [](uint64_t later, uint64_t earlier) {
    return static_cast<int64_t>(later - earlier) < 0 ? 0 : later - earlier;
  });
}

template <size_t N>
void load(std::array<uint64_t, N>& to, const std::array<std::atomic<uint64_t>, N>& from) {
  for (size_t i = 0; i < N; ++i) to[i] = from[i].load(std::memory_order_relaxed);
}

}  // namespace

uint64_t ProfileSnapshot::total_ticks() const {
  return std::accumulate(ticks.begin(), ticks.end(), uint64_t{0});
}

ProfileSnapshot ProfileSnapshot::since(const ProfileSnapshot& earlier) const {
  ProfileSnapshot result = *this;
  subtract(result.ticks, earlier.ticks);
  subtract(result.sub_ticks, earlier.sub_ticks);
  subtract(result.counters, earlier.counters);
  subtract(result.messages, earlier.messages);
  subtract(result.message_bytes, earlier.message_bytes);
  return result;
}

void ProcessorProfile::snapshot_at(ProfileSnapshot& out, const uint64_t* now) const {
  while (true) {
    const uint64_t version = version_.load(std::memory_order_acquire);
    if (version % 2 == 0) {
      for (size_t i = 0; i < kCategoryCount; ++i) out.ticks[i] = ticks_[i].load(std::memory_order_acquire);
      const auto open = static_cast<size_t>(current_.load(std::memory_order_acquire));
      // The stamp is taken after the sums, so that it is not before any time stamp in them.
      const uint64_t stamp = now != nullptr ? *now : time_stamp();
      if (open < kCategoryCount) out.ticks[open] += stamp;
      if (version_.load(std::memory_order_acquire) == version) break;
    }
    // The owner may have lost its core inside enter().
    sched_yield();
  }
  load(out.sub_ticks, sub_ticks_);
  load(out.counters, counters_);
  load(out.messages, messages_);
  load(out.message_bytes, message_bytes_);
}

}  // namespace multigrain
