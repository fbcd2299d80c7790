// The locks of critical sections and reductions, which have no place of their own in the program: the address of a
// section's name stands for the lock, and is the same on all nodes.
#pragma once

#include <multigrain/multigrain.h>

#include <array>
#include <cstdint>

#include "openmp/abi.h"

namespace multigrain::openmp {

inline constexpr uint32_t kMaxNamedLocks = 4096;

// Is in shared memory. `guard` guards the rest.
struct NamedLocks {
  mg_lock_t guard;
  uint32_t count;
  struct Entry {
    const void* name;
    mg_lock_t lock;
  };
  std::array<Entry, kMaxNamedLocks> entries;
};

NamedLocks* make_named_locks();

// Returns the lock of the name, which is made when it is first asked for.
mg_lock_t lock_of(const void* name);

}  // namespace multigrain::openmp
