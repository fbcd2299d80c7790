// Lists of pages: any thread adds to one, and one thread takes it as a whole.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/ids.h"

namespace multigrain {

// The head of a list, and each page's `next`, is a page's number + 1; 0: there is none. A page is in a list at most once, which its
// record says. Returns whether the list was empty. Async-signal-safe.
inline bool add_to_list(std::atomic<uint64_t>& head, PageId page, uint64_t& next) {
  uint64_t first = head.load(std::memory_order_relaxed);
  do next = first;
  while (!head.compare_exchange_weak(first, page.value + 1, std::memory_order_release));
  return first == 0;
}

}  // namespace multigrain
