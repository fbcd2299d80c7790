// Blocks of shared memory as a program gets them: what the shared heap leaves to its caller (memory/heap/shared_heap.h)
// is done here, for mg_alloc() and for malloc() of programs of threads.
#pragma once

#include "runtime/node.h"

namespace multigrain {

enum class Contents : uint8_t { kZero, kAny };

// Returns a block of `size` bytes. `alignment` is a power of two, or 0 (SharedHeap::allocate()). The block's bytes are zero
// unless they may be anything. `site` is the address in the program to which its call returns; 0: not known. Errors are those of SharedHeap::allocate(). Ordinary code of any node may call it, with no
// lock of the runtime held.
tl::expected<void*, HeapError> allocate(Node& node, size_t size, size_t alignment, const Placement& placement,
                                        Contents contents, uint64_t site);

// Gives back a block, whichever node got it. Errors are those of SharedHeap::free().
tl::expected<void, HeapError> release(Node& node, void* block, uint64_t site);

// Returns how many bytes of a block the program may use, whichever node got it. Errors are those of SharedHeap::usable_size().
tl::expected<size_t, HeapError> usable_size(Node& node, const void* block);

// Under --check: loads the module that names places, and makes the node's Checker. Before any processor runs. Errors: there is
// no such module.
Status start_check(Node& node);
// Under --check, at the end of the run: looks at the blocks that this node has made and freed. For ordinary code.
void look_at_blocks(Node& node);

}  // namespace multigrain
