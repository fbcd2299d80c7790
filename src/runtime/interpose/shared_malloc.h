// Lets malloc and operator new give shared memory to a program that was written for threads (src/threads), which hand each
// other what they allocate. The runtime, the C library and other libraries of the system get private memory as ever:
// which of them calls is told by the address to which the call returns.
#pragma once

#include <cstddef>

namespace multigrain {

// The functions that give such memory. They have the semantics of the C library, errno included.
struct SharedMalloc {
  // Returns whether code at this address is to get shared memory. Async-signal-safe.
  bool (*is_for)(const void* caller);
  // Returns whether the block came from `allocate`. Async-signal-safe.
  bool (*owns)(const void* block);
  // `alignment` is a power of two, or 0; `caller` is the address to which the call that allocates returns.
  void* (*allocate)(size_t size, size_t alignment, bool zeroed, const void* caller);
  void* (*reallocate)(void* block, size_t size, const void* caller);  // `block` is null, or one that it owns
  void (*release)(void* block);
  size_t (*usable_size)(void* block);
};

// From now on the malloc family and operator new use these. If it is null, no memory that they give is shared.
void set_shared_malloc(const SharedMalloc* functions);

// Return the functions if they are for the caller, or own the block; otherwise null. Async-signal-safe.
const SharedMalloc* shared_malloc_for(const void* caller);
const SharedMalloc* shared_malloc_of(const void* block);

}  // namespace multigrain

// In a function that stands in front of another one: the address to which its call returns.
#define MG_CALLER __builtin_return_address(0)
