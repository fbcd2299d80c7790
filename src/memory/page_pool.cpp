#include "memory/page_pool.h"

#include <new>
#include <utility>

#include "memory/sparse_table.h"

namespace multigrain {

Result<PagePool> PagePool::create(size_t page_size, uint64_t max_pages) {
  if (page_size == 0 || page_size % 1024 != 0 || max_pages == 0 || max_pages > UINT64_MAX / page_size)
    return fail("cannot make a pool of {} buffers of {} bytes", max_pages, page_size);
  Result<std::byte*> memory = mmap_sparse(page_size * max_pages, "twins");
  if (!memory) return tl::unexpected(memory.error());
  return PagePool(*memory, page_size, max_pages);
}

PagePool::PagePool(PagePool&& other) noexcept
    : free_(std::exchange(other.free_, nullptr)),
      fresh_(std::exchange(other.fresh_, 0)),
      in_use_(other.in_use_.exchange(0, std::memory_order_relaxed)),
      memory_(std::exchange(other.memory_, nullptr)),
      page_size_(other.page_size_),
      max_pages_(std::exchange(other.max_pages_, 0)) {}

PagePool::~PagePool() {
  if (memory_ != nullptr) munmap_sparse(memory_, page_size_ * max_pages_);
}

std::byte* PagePool::acquire() {
  std::byte* buffer = nullptr;
  lock_.lock();
  if (free_ != nullptr) {
    buffer = reinterpret_cast<std::byte*>(free_);
    free_ = free_->next;
  } else if (fresh_ < max_pages_) {
    buffer = memory_ + fresh_ * page_size_;
    ++fresh_;
  }
  lock_.unlock();
  if (buffer == nullptr)
    die(1, "too many pages are written between two releases: all twins are in use (buffers)", max_pages_);
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return buffer;
}

void PagePool::release(std::byte* buffer) {
  const uint64_t offset = reinterpret_cast<uintptr_t>(buffer) - reinterpret_cast<uintptr_t>(memory_);
  MG_CHECK(offset < page_size_ * max_pages_ && offset % page_size_ == 0, reinterpret_cast<uintptr_t>(buffer));
  MG_CHECK(in_use_.fetch_sub(1, std::memory_order_relaxed) > 0);
  lock_.lock();
  free_ = ::new (static_cast<void*>(buffer)) FreeBuffer{free_};
  lock_.unlock();
}

}  // namespace multigrain
