// The heaps of one node of a run with several: which of them malloc uses, and how the image of one replaces another.
//
//   private heap  It holds what fork would copy: the program's blocks. It is in a fixed range, which is copied from
//                 node 0 at spawn.
//   boot heap     It is this process's alone and never copied: for what must survive a copy that overwrites the private
//                 heap. Before the first copy arrives nodes other than 0 use nothing else; on every node, so do
//                 allocations in a BootHeapScope (the runtime's threads, and what the C library keeps for a thread).
//   C library's   A program that runs as one node keeps the malloc that it would have without Multigrain, unless there may be
//                 checkpoints, which have the private heap. So does the Python interpreter (runtime/interpreter.h), of whose
//                 state nothing is copied.
//
// A checkpoint at a barrier has the private heap, too. In a run that goes on from one, node 0 uses the boot heap as the others do
// until that heap is there (runtime/program_image.h).
//
// The choice between the C library's heap and Multigrain's is made once, at the first malloc of the process, from
// MULTIGRAIN_NODES, MULTIGRAIN_NODE, MULTIGRAIN_INTERPRETER, MULTIGRAIN_CHECKPOINT and MULTIGRAIN_RESTART; that is before any constructor has run and perhaps before the C library has set
// `environ`. Builds with a sanitizer leave malloc to the sanitizer, so they have no private heap and cannot spawn on
// other nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace multigrain {

// Returns whether malloc of this process is Multigrain's, so that the process's private state can be copied. The
// runtime refuses to start a run of several nodes without it. Async-signal-safe.
bool private_heap_active();

// To be called in a node that has been forked (runtime/fork_server.cpp), when its environment is its own and before another
// thread exists: decides anew. What the process before the fork allocated, every node has in its private heap, where the
// first copy replaces it by what has become of it on node 0.
void heap_of_forked_node();

// Returns whether all of [address, address + length) lies in the private heap, as far as that has grown.
// Async-signal-safe.
bool in_private_heap(uintptr_t address, size_t length);

// While one exists, the calling thread allocates from the boot heap. Scopes nest. free() finds a block's
// heap by itself.
class BootHeapScope {
 public:
  BootHeapScope();
  ~BootHeapScope();
  // These begin and end a scope without an object, for a library that calls back. Async-signal-safe.
  static void enter();
  static void leave();
  BootHeapScope(const BootHeapScope&) = delete;
  BootHeapScope& operator=(const BootHeapScope&) = delete;
};

// Returns whether the calling thread is in one. Async-signal-safe.
bool in_boot_heap_scope();

// While it exists no thread allocates from or frees to the private heap (they wait), so its image is consistent.
class HeapFreeze {
 public:
  HeapFreeze();
  ~HeapFreeze();
  HeapFreeze(const HeapFreeze&) = delete;
  HeapFreeze& operator=(const HeapFreeze&) = delete;

  // Returns the heap's bytes from layout::kPrivateHeapBase on; none if nothing was allocated there. Most of them may be
  // in pages that were never touched.
  [[nodiscard]] std::span<const std::byte> image() const;
};

// The receiving node calls these, or one that goes on from a checkpoint, in this order, while no program code runs on it. They are async-signal-safe, and each
// ends the run with a sentence if it cannot be done or makes no sense. From the first call to the last, the boot heap
// serves malloc; afterwards the private heap does, which is then as it was on the sender. What it held before is gone.
void receive_heap_begin(size_t image_bytes);
void receive_heap_bytes(uint64_t offset, std::span<const std::byte> bytes);
void receive_heap_end();

// Makes the C library allocate now, from the boot heap, what it would allocate lazily and keep (buffers of the standard
// streams, the time zone): the next copy would overwrite that in the private heap. Called on nodes other than 0, once,
// before the first copy.
void settle_c_library();

// The malloc family with the C library's semantics, errno included. interpose/malloc.cpp exports these functions.
namespace heap {
void* allocate(size_t size);
void* allocate_zeroed(size_t count, size_t size);
void* allocate_aligned(size_t alignment, size_t size);  // `alignment` is a power of two
void* reallocate(void* block, size_t size);
void release(void* block);
size_t usable_size(void* block);
}  // namespace heap

}  // namespace multigrain
