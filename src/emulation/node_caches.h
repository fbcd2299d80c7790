// The caches of this process's node, if the run has --caches on: its processors' accesses are charged, and protocols tell what
// they move.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "emulation/cache_model.h"

namespace multigrain::node_caches {

namespace internal {
extern bool g_on;
void purge(uint64_t address, uint64_t length);
}  // namespace internal

// Turns the caches on in this process, for good, for shared memory that the program has at `memory`, of so many bytes. Called
// once, before there are threads.
Status start(const CacheDescription& description, unsigned processors, const std::byte* memory, uint64_t bytes,
             size_t page_size);

// A processor of the node has read or written bytes. Returns what that costs; 0 for memory that is not shared, which is taken
// to be in its cache. Async-signal-safe. start() must have been called.
Picoseconds access(unsigned processor, const void* address, uint64_t length, bool writes);

// A protocol takes these bytes of the shared memory (from 0) out of this node's frames, or puts others there: no cache has their
// lines any more. Async-signal-safe. Without start() this is one test of a constant.
inline void purge(uint64_t address, uint64_t length) {
  if (internal::g_on) internal::purge(address, length);
}

}  // namespace multigrain::node_caches
