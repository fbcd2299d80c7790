// The pool has page-sized buffers for twins (and anything else that lives from a fault to a release).
//
// The buffers are reserved once as address space, get their memory on first use, and are reused last-in first-out so that recently
// used buffers stay in the cache. A pool that needs many gets memory for several at a time: a fault of the kernel's for each would
// take a multiple of the time. The pool never uses malloc: twins are made in the fault handler, which may have
// interrupted malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/spin_lock.h"

namespace multigrain {

class PagePool {
 public:
  // Makes a pool with room for `max_pages` buffers of `page_size` bytes (a multiple of 1024). It costs memory for the
  // largest number of buffers that were in use at once, or for up to twice as many, but at most 2 MiB more. Start-up only.
  static Result<PagePool> create(size_t page_size, uint64_t max_pages);

  PagePool(PagePool&& other) noexcept;  // while no thread uses either
  PagePool& operator=(PagePool&&) = delete;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();

  // The two functions below are async-signal-safe, and any thread may call them.

  // Returns a buffer with undefined contents, aligned to 1024, or, if they are a multiple of 4096, to that. Ends the run, with a sentence, if all are in use.
  [[nodiscard]] std::byte* acquire();
  // Takes back a buffer of this pool, which must be in use; another pointer is a broken invariant.
  void release(std::byte* buffer);

  [[nodiscard]] uint64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  [[nodiscard]] size_t page_size() const { return page_size_; }
  // Returns all of its buffers, one after the other. Those that were never used come last.
  [[nodiscard]] std::byte* memory() const { return memory_; }

 private:
  struct FreeBuffer {
    FreeBuffer* next;
  };

  PagePool(std::byte* memory, size_t page_size, uint64_t max_pages)
      : memory_(memory), page_size_(page_size), max_pages_(max_pages) {}

  void populate(uint64_t first, uint64_t count) const;

  SpinLock lock_;
  FreeBuffer* free_ MG_GUARDED_BY(lock_) = nullptr;
  uint64_t fresh_ MG_GUARDED_BY(lock_) = 0;      // buffers from here on were never used
  uint64_t populated_ MG_GUARDED_BY(lock_) = 0;  // those before this one have got their memory, or are about to
  std::atomic<uint64_t> in_use_{0};
  std::byte* memory_;
  size_t page_size_;
  uint64_t max_pages_;
};

}  // namespace multigrain
