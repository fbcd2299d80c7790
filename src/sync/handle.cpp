#include "sync/handle.h"

#include <sys/mman.h>

#include "base/error.h"

namespace multigrain {

ZeroPages::ZeroPages(size_t bytes)
    : data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      bytes_(bytes) {
  if (data_ == MAP_FAILED) {
    die(1,
        "cannot reserve address space for the tables of locks and barriers (is there a limit, ulimit -v?), in bytes:",
        bytes);
  }
  // Most tables have few records, far apart, and a huge page for each would be the larger part of a node's memory. The
  // call fails on kernels without huge pages, where there is nothing to prevent.
  (void)madvise(data_, bytes, MADV_NOHUGEPAGE);
}

ZeroPages::~ZeroPages() {
  munmap(data_, bytes_);
}

bool HandleSource::take(Index& index) {
  guard_.lock();
  bool found = true;
  if (free_ != kNone) {
    index.value = free_ - 1;
    free_ = next_free_[index.value];
  } else if (fresh_ != limit()) {
    index.value = fresh_++;
  } else {
    found = false;
  }
  if (found) index.generation = static_cast<uint8_t>(generation_[index.value]);
  guard_.unlock();
  return found;
}

bool HandleSource::give_back(Index index) {
  guard_.lock();
  const bool valid = index.value < fresh_ && generation_[index.value] == index.generation;
  if (valid) {
    const unsigned generation = ++generation_[index.value];
    if (generation < 1u << SyncHandle::kGenerationBits) {
      next_free_[index.value] = free_;
      free_ = index.value + 1;
    }
  }
  guard_.unlock();
  return valid;
}

HandleSource::Image HandleSource::image() const {
  guard_.lock();
  const uint32_t fresh = fresh_;
  Image image{.free = free_, .next_free = {}, .generation = {}};
  guard_.unlock();
  for (uint32_t i = 0; i < fresh; ++i) {
    image.next_free.push_back(next_free_[i]);
    image.generation.push_back(generation_[i]);
  }
  return image;
}

std::vector<HandleSource::Index> HandleSource::in_use(const Image& image) {
  std::vector<bool> is_free(image.generation.size());
  for (uint32_t at = image.free; at != kNone; at = image.next_free[at - 1]) is_free[at - 1] = true;
  std::vector<Index> indices;
  for (uint32_t i = 0; i < image.generation.size(); ++i)
    if (!is_free[i] && image.generation[i] < 1u << SyncHandle::kGenerationBits)
      indices.push_back({i, static_cast<uint8_t>(image.generation[i])});
  return indices;
}

bool HandleSource::restore(const Image& image) {
  const size_t fresh = image.generation.size();
  if (fresh > limit() || image.next_free.size() != fresh) return false;
  // The list has an end, and no index that was never given out.
  size_t length = 0;
  for (uint32_t at = image.free; at != kNone; at = image.next_free[at - 1])
    if (at > fresh || ++length > fresh) return false;
  guard_.lock();
  for (size_t i = 0; i < fresh; ++i) {
    next_free_[i] = image.next_free[i];
    generation_[i] = image.generation[i];
  }
  fresh_ = static_cast<uint32_t>(fresh);
  free_ = image.free;
  guard_.unlock();
  return true;
}

}  // namespace multigrain
