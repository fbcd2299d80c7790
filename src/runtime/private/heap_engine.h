// A malloc whose whole state lies in one fixed address range, so that copying the used part of the range to the same
// addresses of another process copies the allocator too: blocks stay where pointers say they are, and the other process
// can go on to free and reallocate them.
//
// Boost.Interprocess's best-fit tree manages the range. In front of it stand free lists for blocks of up to a kilobyte,
// one for each size class, in a few shards so that threads seldom meet. Only the locks are outside the range: a copy
// taken while its source holds them must not arrive locked.
//
// The heap works from the first instruction of a process on: no constructor need have run, and nothing here calls
// malloc, stdio or anything that does. It is thread-safe, not async-signal-safe, and never sets errno; the
// callers translate.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"

namespace multigrain {

class HeapEngine {
 public:
  static constexpr size_t kAlignment = 16;

  // Makes a heap of at most `capacity` bytes at address `base` (both multiples of 4 KiB). It maps nothing: the first
  // allocation reserves the range, and ends the process with a sentence if something else is mapped there.
  constexpr HeapEngine(uintptr_t base, size_t capacity) : base_(base), capacity_(capacity) {}
  HeapEngine(const HeapEngine&) = delete;
  HeapEngine& operator=(const HeapEngine&) = delete;

  [[nodiscard]] bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - base_ < capacity_;
  }

  // Returns whether all of [address, address + length) is memory that the heap has at the moment, in use or not.
  // Async-signal-safe.
  [[nodiscard]] bool has(uintptr_t address, size_t length) const {
    const uintptr_t offset = address - base_;
    if (!ready_.load(std::memory_order_acquire) || offset >= capacity_) return false;
    const uint64_t size = root().image_bytes;
    return offset <= size && length <= size - offset;
  }

  // These return nullptr when the range or the machine's memory is used up. Size 0 gives a unique block.
  void* allocate(size_t size);
  void* allocate_zeroed(size_t size);
  // `alignment` is a power of two.
  void* allocate_aligned(size_t alignment, size_t size);
  // `block` is from this heap and not nullptr. If the call fails the block is as it was.
  void* reallocate(void* block, size_t size);
  void release(void* block);
  // Returns how many bytes the holder of the block may use: as many as it asked for, or some more.
  [[nodiscard]] size_t usable_size(const void* block) const;

  // --- Copying. Between lock_all and unlock_all no block is allocated or freed and the image is consistent.
  void lock_all() MG_ACQUIRE(tree_lock_.lock);
  void unlock_all() MG_RELEASE(tree_lock_.lock);
  // Returns the bytes to copy, from the base on; none if nothing was ever allocated. Call it with everything locked.
  [[nodiscard]] std::span<const std::byte> image() const;
  // Makes this heap ready to take an image of `size` bytes, which the caller then writes at image_target(): whatever
  // was in the heap is gone, and all its bytes are zero. No allocation or release may run until finish_adoption() has
  // returned. Returns false if the size is no possible image or memory is short.
  bool begin_adoption(size_t size);
  [[nodiscard]] std::byte* image_target() const { return reinterpret_cast<std::byte*>(base_); }
  // Returns false if what was written is not the image of a heap at this base.
  bool finish_adoption();

  // Walks the tree, for tests. Returns false if it is damaged.
  bool check();

 private:
  static constexpr unsigned kShards = 16;
  static constexpr unsigned kClasses = 65;
  static constexpr size_t kRootBytes = 64 * 1024;  // room for Root, before the tree's header

  struct FreeList {
    void* first;
    uint64_t length;
  };
  // The part of the state that is this class's rather than Boost's, at the base of the range.
  struct Root {
    uint64_t magic;
    // How many bytes there are from the base to the end of what the tree manages.
    uint64_t image_bytes;
    FreeList lists[kShards][kClasses];
  };
  static_assert(sizeof(Root) <= kRootBytes);
  struct alignas(64) PaddedLock {
    SpinLock lock;
  };

  [[nodiscard]] Root& root() const { return *reinterpret_cast<Root*>(base_); }
  static unsigned shard_of_this_thread();
  void make_ready();
  void reserve() MG_REQUIRES(tree_lock_.lock);
  bool grow(size_t at_least) MG_REQUIRES(tree_lock_.lock);
  void* tree_allocate(size_t size, size_t alignment) MG_REQUIRES(tree_lock_.lock);
  void* refill(unsigned shard, unsigned size_class) MG_REQUIRES(shard_locks_[shard].lock);
  void trim(FreeList& list);

  const uintptr_t base_;
  const size_t capacity_;
  std::atomic<bool> ready_{false};
  bool reserved_ MG_GUARDED_BY(tree_lock_.lock) = false;
  size_t adopted_bytes_ MG_GUARDED_BY(tree_lock_.lock) = 0;
  mutable PaddedLock tree_lock_;
  std::array<PaddedLock, kShards> shard_locks_;  // taken before tree_lock_, in ascending order
};

}  // namespace multigrain
