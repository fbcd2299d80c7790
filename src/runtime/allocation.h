// Blocks of shared memory as a program gets them: what the shared heap leaves to its caller (memory/heap/shared_heap.h)
// is done here, for mg_alloc() and for malloc() of programs of threads.
#pragma once

#include "runtime/node.h"

namespace multigrain {

enum class Contents : uint8_t { kZero, kAny };

// Returns a block of `size` bytes. `alignment` is a power of two, or 0 (SharedHeap::allocate()). The block's bytes are zero
// unless they may be anything. Errors are those of SharedHeap::allocate(). Ordinary code of any node may call it, with no
// lock of the runtime held.
tl::expected<void*, HeapError> allocate(Node& node, size_t size, size_t alignment, const Placement& placement,
                                        Contents contents);

// Gives back a block, whichever node got it. Errors are those of SharedHeap::free().
tl::expected<void, HeapError> release(Node& node, const void* block);

}  // namespace multigrain
