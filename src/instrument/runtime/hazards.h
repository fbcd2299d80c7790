// The runtime accesses a thread's hazards and the node's line table by these functions. Both lie where compiled code
// looks for them (docs/internals/fine-grain.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "instrument/abi.h"

// These are in store_entries.cpp. The variables are how often the calling thread has published its loop hazard, and the
// last result of multigrain_publish_loop_hazard(), MG_FINE_CACHE_UNUSABLE before its first call.
extern "C"
    [[gnu::visibility("hidden"), gnu::tls_model("initial-exec")]] __thread uint64_t multigrain_loop_hazards_published;
extern "C" [[gnu::visibility("hidden"), gnu::tls_model("initial-exec")]] __thread uint64_t multigrain_loop_hazard_epoch;
// Publishes the loop hazard. Returns what multigrain_read_rights_epoch() then returns.
extern "C" [[gnu::visibility("hidden")]] uint64_t multigrain_publish_loop_hazard();
// Returns the node's rights epoch if entries of the rights cache that were made in it are valid until the caller clears
// its hazard, and MG_FINE_CACHE_UNUSABLE otherwise. The caller must have a hazard published.
extern "C" [[gnu::visibility("hidden")]] uint64_t multigrain_read_rights_epoch();

namespace multigrain::checks {

inline bool is_shared(uintptr_t address) {
  return address >> MG_FINE_VIEW_SHIFT == MG_FINE_VIEW_TAG;
}
inline bool touches_shared(uintptr_t begin, uintptr_t end) {
  return begin < MG_FINE_VIEW_BASE * 3 / 2 && end > MG_FINE_VIEW_BASE;
}
// The end of the view, which is all addresses of one tag.
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
// Clears the hazards by release stores: a requester that sees a hazard cleared also sees all stores that it covered.
inline void clear_hazards() {
  for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i) hazard(i).store(0, std::memory_order_release);
}

// A signal handler that begins on the calling thread uses `hazards` until it ends. `returned` says at its end that the
// interrupted code goes on, with its own hazards as they were. Otherwise those are cleared. Calls do not nest. Both
// functions are async-signal-safe.
void begin_handler(uint64_t* hazards);
void end_handler(bool returned);

// Maps zeroed memory at the addresses of the rights cache and of the line table, unless something is mapped there, and
// sets the line shift of page protocols. Compiled code looks there even in a run without a line protocol. The file that
// defines this function calls it before any constructor of the program.
void reserve_line_table();
// Sets the words of the lines of [begin, end) to exclusive. Without a line protocol all memory may be stored to.
void mark_writable(uintptr_t begin, uintptr_t end);

}  // namespace multigrain::checks
