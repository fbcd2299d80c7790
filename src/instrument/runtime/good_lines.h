// Whether the words of lines say that this node may use them, and what is remembered of that by the page
// (docs/fine-grain.md, "Pages").
//
// All that says so wants the lines covered by a window of the calling thread, published before `since` was read
// (multigrain_read_losses), and is right until that is closed. `stores`: the lines must be exclusive, else readable.
// Addresses and lines are the view's. Nothing here waits, allocates or locks.
#pragma once

#include <cstdint>

#include "instrument/runtime/windows.h"

namespace multigrain::checks {

inline uint64_t page_of(uintptr_t address) {
  return (address - MG_FINE_VIEW_BASE) >> MG_FINE_PAGE_SHIFT;
}
inline std::atomic_ref<uint64_t> page_word(uint64_t page) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(MG_FINE_PAGES_BASE)[page]);
}
// Whether the page is remembered as what is wanted.
inline bool is_remembered(uint64_t page, bool stores, uint64_t since) {
  const uint64_t is = page_word(page).load(std::memory_order_relaxed) - since;
  return is == MG_FINE_PAGE_EXCLUSIVE || (!stores && is == MG_FINE_PAGE_READABLE);
}

// Lines first .. last.
bool all_good(uint64_t first, uint64_t last, bool stores, uint64_t since);
// `rows` parts of memory, of which [begin, end) is the first, each `stride` behind the one before.
bool all_rows_good(uintptr_t begin, uintptr_t end, uintptr_t stride, uintptr_t rows, bool stores, uint64_t since);

// Looks at all lines of a page, and remembers what they are. No window need be open over those of them that the caller
// does not use: what is remembered is void once the losses have changed.
void look_at_page(uint64_t page, uint64_t since);
// Lines of [begin, end) come, or have come: pages of which some lines were missing are worth a look again.
void look_again_at(uintptr_t begin, uintptr_t end);

}  // namespace multigrain::checks
