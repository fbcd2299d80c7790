// A compiled check of a store that uses the rights cache (docs/internals/fine-grain.md, "The rights cache"), as worlds
// that explore a driver imitate it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fine_grain.h"

namespace multigrain::exploring_driver {

// What is wrong about the order of its accesses.
struct OrderOfCheck {
  bool epoch_then_publish = false;
  bool look_then_cache = false;
};

// Whether the check passes, with the hazard that `publish` publishes. `page`: what is cached; `stop` comes before each
// access of that and of the rights epoch.
template <typename Publish, typename Stop, typename Look>
bool check_and_cache(std::atomic<uint64_t>& epoch, uint64_t& page, OrderOfCheck order, Publish&& publish, Stop&& stop,
                     Look&& looks_writable) {
  if (!order.epoch_then_publish) publish();
  stop(&epoch);
  uint64_t seen = epoch.load();
  if (order.epoch_then_publish) publish();
  const auto is_cached = [&] { return (seen & MG_FINE_EPOCH_CACHED) != 0; };
  if (is_cached()) {
    stop(&page);
    if (page == seen + MG_FINE_CACHED_EXCLUSIVE) return true;
  }
  // If others have replaced the rights epoch meanwhile, nothing is cached.
  const auto say_so = [&] {
    if (is_cached()) return;
    stop(&epoch);
    uint64_t expected = seen;
    seen = epoch.compare_exchange_strong(expected, seen | MG_FINE_EPOCH_CACHED) ? seen | MG_FINE_EPOCH_CACHED : 0;
  };
  if (!order.look_then_cache) say_so();
  if (!looks_writable()) return false;
  if (order.look_then_cache) say_so();
  if (!is_cached()) return true;
  stop(&page);
  page = seen + MG_FINE_CACHED_EXCLUSIVE;
  return true;
}

}  // namespace multigrain::exploring_driver
