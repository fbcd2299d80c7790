// Locks and barriers made of atomics in shared memory ("SM": Shasta paper, section 6.2) in the place of Multigrain's
// ("MP"), for a workload that uses no other synchronisation with them. It is included before the program's source
// (-include), which stays as it is; the program is then one for a shared-memory machine, and needs a line protocol.
#pragma once

#include <multigrain/multigrain.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" void __multigrain_spin(void);

namespace workloads::sm {

// In virtual time a processor waits here until the others' clocks have come near its own (docs/user/virtual-time.md:
// the skew), as it does in Multigrain's locks and barriers. Atomics that hit tell nobody what time it is.
inline void synchronise_clocks() {
  __multigrain_spin();
}

// Each in a line of its own, for either size that lines have under Shasta.
inline constexpr size_t kLine = 128;

struct Lock {
  alignas(kLine) std::atomic<uint32_t> held;
};
struct Barrier {
  alignas(kLine) std::atomic<uint32_t> arrived;
  alignas(kLine) std::atomic<uint32_t> episode;
  alignas(kLine) uint32_t count;
};

// Zeroed, which is how both begin.
template <typename T>
T* create() {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.alignment = alignof(T);
  void* const block = mg_alloc(sizeof(T), &options);
  if (block == nullptr) {
    std::fprintf(stderr, "cannot allocate a lock or barrier: %s\n", mg_error());
    std::exit(1);
  }
  return static_cast<T*>(block);
}

inline mg_lock_t create_lock() {
  return reinterpret_cast<mg_lock_t>(create<Lock>());
}
inline mg_barrier_t create_barrier(unsigned count) {
  auto* const barrier = create<Barrier>();
  barrier->count = count != 0 ? count : mg_processors();
  return reinterpret_cast<mg_barrier_t>(barrier);
}
inline void destroy(uint64_t handle) {
  mg_free(reinterpret_cast<void*>(handle));
}

// Figure 1 of the paper: one loop, around a load and the instruction that takes the lock if it is free.
inline void lock(mg_lock_t handle) {
  synchronise_clocks();
  std::atomic<uint32_t>& held = reinterpret_cast<Lock*>(handle)->held;
  uint32_t free = 0;
  while (held.load(std::memory_order_relaxed) != 0 ||
         !held.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed))
    free = 0;
}
inline void unlock(mg_lock_t handle) {
  reinterpret_cast<Lock*>(handle)->held.store(0, std::memory_order_release);
}

// Processors count themselves; the last one lets the others go.
inline void meet(mg_barrier_t handle) {
  synchronise_clocks();
  auto* const barrier = reinterpret_cast<Barrier*>(handle);
  const uint32_t episode = barrier->episode.load(std::memory_order_relaxed);
  if (barrier->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == barrier->count) {
    barrier->arrived.store(0, std::memory_order_relaxed);
    barrier->episode.store(episode + 1, std::memory_order_release);
    return;
  }
  while (barrier->episode.load(std::memory_order_acquire) == episode) {
  }
}

}  // namespace workloads::sm

#define mg_lock_create() ::workloads::sm::create_lock()
#define mg_lock_destroy(lock) ::workloads::sm::destroy(lock)
#define mg_lock(handle) ::workloads::sm::lock(handle)
#define mg_unlock(handle) ::workloads::sm::unlock(handle)
#define mg_barrier_create(count) ::workloads::sm::create_barrier(count)
#define mg_barrier_destroy(barrier) ::workloads::sm::destroy(barrier)
#define mg_barrier(handle) ::workloads::sm::meet(handle)
