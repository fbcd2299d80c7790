// A thread's hazards and its node's line table, as compiled code sees them (docs/internals/fine-grain.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "instrument/abi.h"

// How often the calling thread has published its loop hazard, and what __multigrain_publish_loop_hazard() returned the last
// time (trampolines.cpp).
extern "C"
    [[gnu::visibility("hidden"), gnu::tls_model("initial-exec")]] __thread uint64_t multigrain_loop_hazards_published;
extern "C" [[gnu::visibility("hidden"), gnu::tls_model("initial-exec")]] __thread uint64_t multigrain_loop_hazard_epoch;
// Called with a hazard published: the node's rights epoch if entries of the rights cache made in it hold until the hazard is
// cleared, or MG_FINE_CACHE_UNUSABLE.
extern "C" [[gnu::visibility("hidden")]] uint64_t multigrain_read_rights_epoch();

namespace multigrain::checks {

inline bool is_shared(uintptr_t address) {
  return address >> MG_FINE_VIEW_SHIFT == MG_FINE_VIEW_TAG;
}
inline bool touches_shared(uintptr_t begin, uintptr_t end) {
  return begin < MG_FINE_VIEW_BASE * 3 / 2 && end > MG_FINE_VIEW_BASE;
}
// The view's end: one tag of addresses.
inline constexpr uintptr_t kViewEnd = uintptr_t{MG_FINE_VIEW_TAG + 1} << MG_FINE_VIEW_SHIFT;
static_assert(MG_FINE_VIEW_BASE * 3 / 2 == kViewEnd);

inline unsigned line_shift() {
  return static_cast<unsigned>(*reinterpret_cast<const volatile uint64_t*>(MG_FINE_SHIFT_ADDRESS));
}
inline uint64_t line_of(uintptr_t address) {
  return (address - MG_FINE_VIEW_BASE) >> line_shift();
}
inline std::atomic_ref<uint64_t> table_word(uint64_t line) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(MG_FINE_TABLE_BASE)[line]);
}
inline std::atomic_ref<uint64_t> hazard(unsigned i) {
  return std::atomic_ref<uint64_t>(__multigrain_hazards[i]);
}
// Release stores: a requester that sees a hazard clear sees all stores that it covered.
inline void clear_hazards() {
  for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i) hazard(i).store(0, std::memory_order_release);
}

// A signal handler begins on the calling thread, and uses these hazards until it ends. At its end `returned` says that the
// interrupted code goes on, with its own hazards as they were; else those are cleared. Not nested. Async-signal-safe.
void begin_handler(uint64_t* hazards);
void end_handler(bool returned);

// Maps zeroed memory at the line table's place, with the line shift of page protocols, unless something is there, and at
// the rights cache's. Compiled code looks there even in a run without a line protocol. The file that defines it runs it
// before any constructor of the program.
void reserve_line_table();
// Without a line protocol all memory may be stored to: sets the words of the lines of [begin, end) so.
void mark_writable(uintptr_t begin, uintptr_t end);

}  // namespace multigrain::checks
