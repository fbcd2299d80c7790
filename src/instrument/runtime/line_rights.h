// These functions tell whether this node has the rights to lines. They read the words of the line table, and the rights
// cache, which says the same of whole pages (docs/internals/fine-grain.md, "The rights cache").
//
// A hazard of the calling thread must cover the lines, and must have been published before `epoch` was read
// (multigrain_read_rights_epoch). The answer holds until that hazard is cleared. If `stores` is true, the lines must be
// exclusive, otherwise readable. Addresses and lines are those of the view. Nothing here waits, allocates or locks.
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
// Tells whether the rights cache says that all lines of the page are exclusive (`stores`), or at least readable.
inline bool is_cached(uint64_t page, bool stores, uint64_t epoch) {
  const uint64_t is = page_word(page).load(std::memory_order_relaxed) - epoch;
  return is == MG_FINE_CACHED_EXCLUSIVE || (!stores && is == MG_FINE_CACHED_READABLE);
}

// Tells whether the node has the rights to lines first .. last.
bool lines_have_rights(uint64_t first, uint64_t last, bool stores, uint64_t epoch);
// Tells whether the node has the rights to all lines of `rows` parts of memory, of which [begin, end) is the first, and
// each begins `stride` behind the one before.
bool rows_have_rights(uintptr_t begin, uintptr_t end, uintptr_t stride, uintptr_t rows, bool stores, uint64_t epoch);

// Checks all lines of a page, and enters the result into the rights cache. No hazard need cover the lines that the
// caller does not use: the entry is void once the rights epoch has changed.
void cache_rights_of_page(uint64_t page, uint64_t epoch);
// Drops the entries of the pages of [begin, end) that say that some lines of the page are missing or not exclusive, so
// that these pages are checked again. The caller has fetched lines there, or is about to.
void drop_incomplete_pages(uintptr_t begin, uintptr_t end);

}  // namespace multigrain::checks
