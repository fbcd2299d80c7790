// These are accesses as mgcc compiles them (docs/internals/fine-grain.md), written out by hand. A program that includes
// this file declares by the note that it has compiled checks, although mgcc has not compiled it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "instrument/abi.h"
#include "instrument/note.h"

asm(MG_FINE_NOTE);

namespace multigrain::bench {

// The following functions are a checked load, a checked store and a checked atomic.
inline uint64_t load(const uint64_t* at) {
  const uint64_t value = __atomic_load_n(at, __ATOMIC_RELAXED);
  if (static_cast<uint32_t>(value) != MG_FINE_FLAG32) [[likely]]
    return value;
  uint64_t missed;
  __multigrain_load(at, sizeof missed, &missed);
  return missed;
}
// Makes the word's line exclusive, and leaves hazard 0 published over it.
inline std::atomic_ref<uint64_t> publish_hazard(uint64_t* at) {
  __multigrain_begin_store(at);
  return std::atomic_ref<uint64_t>(__multigrain_hazards[0]);
}
inline void store(uint64_t* at, uint64_t value) {
  __multigrain_store_8(at, value);
}
inline bool compare_and_swap(uint64_t* at, uint64_t expected, uint64_t desired) {
  const std::atomic_ref<uint64_t> hazard = publish_hazard(at);
  const bool done = __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  hazard.store(0, std::memory_order_release);
  return done;
}
// A program polls at the end of an iteration, and calls fence() before a release operation.
inline void poll() {
  if (__atomic_load_n(__multigrain_pending_messages, __ATOMIC_RELAXED) != 0) [[unlikely]]
    __multigrain_poll_miss();
}
inline void fence() {
  if (__atomic_load_n(__multigrain_outstanding, __ATOMIC_RELAXED) != 0) [[unlikely]]
    __multigrain_fence_miss();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <typename Work>
inline double time_ns(Work&& work) {
  const uint64_t start = ticks();
  work();
  return static_cast<double>(ticks() - start) * 1000.0 / ticks_per_us();
}

}  // namespace multigrain::bench
