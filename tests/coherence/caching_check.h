// This is a compiled check that uses the rights cache (docs/internals/fine-grain.md, "The rights cache"), as worlds
// that explore a driver imitate it. The check that ships cannot be explored: the compiler's pass emits a part of it,
// another part is assembly (src/instrument/runtime/trampolines.cpp), and all of it looks for the node's line table,
// rights cache and rights epoch at addresses that exist once in a process, while such a world has several nodes.
#pragma once

#include <atomic>
#include <cstdint>

#include "memory/checked_memory.h"

namespace multigrain::exploring_driver {

// These are the mistakes that the order of its accesses may have.
struct OrderOfCheck {
  bool epoch_then_publish = false;
  bool look_then_cache = false;
};

// This is what a check finds when it reads the words of the lines of a page.
enum class Looked : uint8_t {
  kMissing,  // the line that is about to be accessed lacks the right
  kHere,     // that line has the right, other lines of the page do not
  kAll       // all lines of the page have it
};

// Publishes the hazard, by `publish`, and reads the node's rights epoch, which becomes `seen`. Calls `stop` before each
// access of the rights epoch and of the rights cache.
template <typename Publish, typename Stop>
void publish_and_read_epoch(const std::atomic<uint64_t>& epoch, uint64_t& seen, OrderOfCheck order, Publish&& publish,
                            Stop&& stop) {
  if (!order.epoch_then_publish) publish();
  stop(&epoch);
  seen = epoch.load();
  if (order.epoch_then_publish) publish();
}

// Returns whether the line may be accessed. `page` is what is cached of its page. If `stores` is true, the line must be
// exclusive. `look(whole)` reads the word of the line, and those of the whole page if the result is to be cached.
template <typename Stop, typename Look>
bool check_and_cache(std::atomic<uint64_t>& epoch, uint64_t& seen, uint64_t& page, bool stores, OrderOfCheck order,
                     Stop&& stop, Look&& look) {
  const auto is_cached = [&] { return (seen & MG_FINE_EPOCH_CACHED) != 0; };
  if (is_cached()) {
    stop(&page);
    if (page == seen + MG_FINE_CACHED_EXCLUSIVE || (!stores && page == seen + MG_FINE_CACHED_READABLE)) return true;
  }
  // If a requester has replaced the rights epoch meanwhile, the check caches nothing.
  const auto say_so = [&] {
    if (is_cached() || seen == MG_FINE_CACHE_UNUSABLE) return;
    stop(&epoch);
    uint64_t expected = seen;
    seen = epoch.compare_exchange_strong(expected, seen | MG_FINE_EPOCH_CACHED) ? seen | MG_FINE_EPOCH_CACHED
                                                                                : MG_FINE_CACHE_UNUSABLE;
  };
  if (!order.look_then_cache) say_so();
  const Looked looked = look(order.look_then_cache || is_cached());
  if (looked == Looked::kMissing) return false;
  if (looked == Looked::kHere) return true;
  if (order.look_then_cache) say_so();
  if (!is_cached()) return true;
  stop(&page);
  page = seen + (stores ? MG_FINE_CACHED_EXCLUSIVE : MG_FINE_CACHED_READABLE);
  return true;
}

}  // namespace multigrain::exploring_driver
