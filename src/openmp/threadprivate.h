// Thread-private variables that the compiler does not make thread-local (-fnoopenmp-use-tls).
//
// Thread 0 has the variable itself, every other thread a copy, in shared memory: so other threads may copy from it
// (copyin, copyprivate), which they could not from a thread-local variable of another node. A copy begins with what the
// variable held when a thread first asked for it.
#pragma once

#include <multigrain/multigrain.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain::openmp {

inline constexpr uint32_t kMaxThreadprivate = 4096;

// Is in shared memory. `guard` guards the rest.
struct ThreadprivateTable {
  mg_lock_t guard;
  uint32_t count;
  struct Entry {
    const void* variable;
    size_t size;
    void* initial;  // what the variable held in the beginning; null: not asked for yet
  };
  std::array<Entry, kMaxThreadprivate> entries;
};

ThreadprivateTable* make_threadprivate_table();

}  // namespace multigrain::openmp
