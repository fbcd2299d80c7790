// Whether this node has rights to lines: by the words of the line table, and by the rights cache, which has that of whole
// pages (docs/internals/fine-grain.md, "The rights cache").
//
// The functions that say so want the lines covered by a hazard of the calling thread, published before `epoch` was read
// (multigrain_read_rights_epoch); the answer holds until that hazard is cleared. `stores`: the lines must be exclusive, else
// readable. Addresses and lines are the view's. Nothing here waits, allocates or locks.
#pragma once

#include <cstdint>

#include "instrument/runtime/hazards.h"

namespace multigrain::checks {

inline uint64_t page_of(uintptr_t address) {
  return (address - MG_FINE_VIEW_BASE) >> MG_FINE_PAGE_SHIFT;
}
inline std::atomic_ref<uint64_t> page_word(uint64_t page) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(MG_FINE_RIGHTS_CACHE_BASE)[page]);
}
// Whether the rights cache says that all lines of the page are exclusive, or at least readable.
inline bool is_cached(uint64_t page, bool stores, uint64_t epoch) {
  const uint64_t is = page_word(page).load(std::memory_order_relaxed) - epoch;
  return is == MG_FINE_CACHED_EXCLUSIVE || (!stores && is == MG_FINE_CACHED_READABLE);
}

// Lines first .. last.
bool lines_have_rights(uint64_t first, uint64_t last, bool stores, uint64_t epoch);
// `rows` parts of memory, of which [begin, end) is the first, each `stride` behind the one before.
bool rows_have_rights(uintptr_t begin, uintptr_t end, uintptr_t stride, uintptr_t rows, bool stores, uint64_t epoch);

// Checks all lines of a page, and enters the result into the rights cache. No hazard need cover those that the caller does
// not use: the entry is void once the rights epoch has changed.
void cache_rights_of_page(uint64_t page, uint64_t epoch);
// Lines of [begin, end) come, or have come: drops the entries that say that some lines of their page are missing, so that
// these pages are checked again.
void drop_incomplete_pages(uintptr_t begin, uintptr_t end);

}  // namespace multigrain::checks
