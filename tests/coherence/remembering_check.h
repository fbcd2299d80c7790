// A compiled check of a store that remembers (docs/fine-grain.md, Pages), as worlds that explore a shell imitate it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/fine_grain.h"

namespace multigrain::exploring_shell {

// What is wrong about the order of its accesses.
struct OrderOfCheck {
  bool losses_then_publish = false;
  bool look_then_remember = false;
};

// Whether the check passes, with the window that `publish` opens. `page`: what is remembered; `stop` comes before each
// access of that and of the losses.
template <typename Publish, typename Stop, typename Look>
bool check_and_remember(std::atomic<uint64_t>& losses, uint64_t& page, OrderOfCheck order, Publish&& publish, Stop&& stop,
                        Look&& looks_writable) {
  if (!order.losses_then_publish) publish();
  stop(&losses);
  uint64_t seen = losses.load();
  if (order.losses_then_publish) publish();
  const auto is_remembered = [&] { return (seen & MG_FINE_REMEMBERED) != 0; };
  if (is_remembered()) {
    stop(&page);
    if (page == seen + MG_FINE_PAGE_EXCLUSIVE) return true;
  }
  // If others have replaced the losses meanwhile, nothing is remembered.
  const auto say_so = [&] {
    if (is_remembered()) return;
    stop(&losses);
    uint64_t expected = seen;
    seen = losses.compare_exchange_strong(expected, seen | MG_FINE_REMEMBERED) ? seen | MG_FINE_REMEMBERED : 0;
  };
  if (!order.look_then_remember) say_so();
  if (!looks_writable()) return false;
  if (order.look_then_remember) say_so();
  if (!is_remembered()) return true;
  stop(&page);
  page = seen + MG_FINE_PAGE_EXCLUSIVE;
  return true;
}

}  // namespace multigrain::exploring_shell
