#include "memory/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "memory/hardware_page.h"
#include "memory/sparse_table.h"

namespace multigrain {

namespace {

constexpr uint64_t kMostPopulated = uint64_t{2} << 20;  // bytes that get their memory at a time

}  // namespace

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
      populated_(std::exchange(other.populated_, 0)),
      in_use_(other.in_use_.exchange(0, std::memory_order_relaxed)),
      memory_(std::exchange(other.memory_, nullptr)),
      page_size_(other.page_size_),
      max_pages_(std::exchange(other.max_pages_, 0)) {}

PagePool::~PagePool() {
  if (memory_ != nullptr) munmap_sparse(memory_, page_size_ * max_pages_);
}

std::byte* PagePool::acquire() {
  std::byte* buffer = nullptr;
  uint64_t populated_from = 0, populated = 0;
  lock_.lock();
  if (free_ != nullptr) {
    buffer = reinterpret_cast<std::byte*>(free_);
    free_ = free_->next;
  } else if (fresh_ < max_pages_) {
    buffer = memory_ + fresh_ * page_size_;
    if (fresh_ == populated_) {
      populated_from = fresh_;
      populated = std::min({std::max<uint64_t>(fresh_, 1), kMostPopulated / page_size_, max_pages_ - fresh_});
      populated_ += populated;
    }
    ++fresh_;
  }
  lock_.unlock();
  if (populated > 1) populate(populated_from, populated);
  if (buffer == nullptr)
    die(1, "too many pages are written between two releases: all twins are in use (buffers)", max_pages_);
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return buffer;
}

// Without the memory a thread ends where it touches its buffer, as it would have ended without this call.
void PagePool::populate(uint64_t first, uint64_t count) const {
  const int saved = errno;
  const uint64_t begin = first * page_size_ & ~(kHardwarePage - 1);
  (void)madvise(memory_ + begin, (first + count) * page_size_ - begin, MADV_POPULATE_WRITE);
  errno = saved;
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
