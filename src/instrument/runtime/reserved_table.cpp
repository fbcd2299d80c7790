// Compiled code reads the line table and the rights cache even if no line protocol runs. This file reserves their
// memory when the program is loaded, so that a program with checks runs under every protocol.
#include <sys/mman.h>

#include <cerrno>

#include "base/error.h"
#include "instrument/runtime/hazards.h"

namespace multigrain::checks {
namespace {

constexpr uint64_t kShiftWithoutProtocol = 6;
// The table has room for all lines of the view at the smallest line size, and for the page with the line shift.
constexpr size_t kBytes = ((kViewEnd - MG_FINE_VIEW_BASE) >> MG_FINE_MIN_LINE_SHIFT) * sizeof(uint64_t) + 0x1000;
constexpr size_t kBytesOfRightsCache = ((kViewEnd - MG_FINE_VIEW_BASE) >> MG_FINE_PAGE_SHIFT) * sizeof(uint64_t);
static_assert(MG_FINE_TABLE_BASE - 0x1000 + kBytes <= MG_FINE_RIGHTS_CACHE_BASE);

// Reserves memory at the address, and returns whether that was possible. Under an address-space limit or a sanitizer's
// shadow there may be no room. A program without compiled checks does not need the tables. A program with checks faults
// at its first shared store, at an address in the line table (docs/internals/architecture.md).
bool reserve(uintptr_t address, size_t bytes) {
  void* const at = reinterpret_cast<void*>(address);
  void* const got =
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == at) return true;
  munmap(got, bytes);  // an old kernel takes the address for a hint
  return false;
}

// Library constructors run before those of the executable, so the program's code finds a table however early it stores.
[[gnu::constructor]] void reserve_at_load() {
  reserve_line_table();
}

}  // namespace

void reserve_line_table() {
  reserve(MG_FINE_RIGHTS_CACHE_BASE, kBytesOfRightsCache);
  if (reserve(MG_FINE_TABLE_BASE - 0x1000, kBytes))
    *reinterpret_cast<uint64_t*>(MG_FINE_SHIFT_ADDRESS) = kShiftWithoutProtocol;
}

void mark_writable(uintptr_t begin, uintptr_t end) {
  // Whole pages are marked, so that the next stores nearby hit.
  constexpr uintptr_t kPage = 4096;
  begin &= ~(kPage - 1);
  end = (end + kPage - 1) & ~(kPage - 1);
  for (uint64_t line = line_of(begin), last = line_of(end - 1); line <= last; ++line)
    table_word(line).store(MG_FINE_EXCLUSIVE, std::memory_order_relaxed);
}

}  // namespace multigrain::checks
