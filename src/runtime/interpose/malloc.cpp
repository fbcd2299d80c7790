// The malloc family of the process: node 0's heap must lie where it can be copied (private_heap.h). operator new and
// delete of the C++ library call these, so they need no counterpart here.
//
// mallinfo, mallopt, malloc_trim and malloc_info are not covered: they still speak of the C library's heap.
//
// The functions have other C++ names and the real assembler names, so that the C library's declarations, whose
// attributes (nonnull, alloc_size, throw()) would let the compiler drop the checks below, do not apply.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>

#include "runtime/private/private_heap.h"

#if !defined(MULTIGRAIN_NO_MALLOC)

#define MG_EXPORT(name) asm(#name) __attribute__((visibility("default"), used))

namespace multigrain {
namespace {
constexpr size_t kHardwarePage = 4096;

void* aligned_or_errno(size_t alignment, size_t size) {
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return heap::allocate_aligned(alignment, size);
}
}  // namespace

extern "C" {
void* mg_malloc(size_t size) MG_EXPORT(malloc);
void* mg_calloc(size_t count, size_t size) MG_EXPORT(calloc);
void* mg_realloc(void* block, size_t size) MG_EXPORT(realloc);
void* mg_reallocarray(void* block, size_t count, size_t size) MG_EXPORT(reallocarray);
void mg_free_private(void* block) MG_EXPORT(free);
int mg_posix_memalign(void** out, size_t alignment, size_t size) MG_EXPORT(posix_memalign);
void* mg_aligned_alloc(size_t alignment, size_t size) MG_EXPORT(aligned_alloc);
void* mg_memalign(size_t alignment, size_t size) MG_EXPORT(memalign);
void* mg_valloc(size_t size) MG_EXPORT(valloc);
void* mg_pvalloc(size_t size) MG_EXPORT(pvalloc);
size_t mg_malloc_usable_size(void* block) MG_EXPORT(malloc_usable_size);

void* mg_malloc(size_t size) {
  return heap::allocate(size);
}
void* mg_calloc(size_t count, size_t size) {
  return heap::allocate_zeroed(count, size);
}
void* mg_realloc(void* block, size_t size) {
  return heap::reallocate(block, size);
}
void mg_free_private(void* block) {
  heap::release(block);
}
size_t mg_malloc_usable_size(void* block) {
  return heap::usable_size(block);
}

void* mg_reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return heap::reallocate(block, bytes);
}

int mg_posix_memalign(void** out, size_t alignment, size_t size) {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;
  void* block = heap::allocate_aligned(alignment, size);
  errno = saved;
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

void* mg_aligned_alloc(size_t alignment, size_t size) {
  return aligned_or_errno(alignment, size);
}

// Works like the C library's memalign, which rounds an alignment up to a power of two.
void* mg_memalign(size_t alignment, size_t size) {
  if (alignment > (~size_t{0} >> 1) + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return heap::allocate_aligned(std::bit_ceil(std::max<size_t>(alignment, 1)), size);
}

void* mg_valloc(size_t size) {
  return heap::allocate_aligned(kHardwarePage, size);
}

void* mg_pvalloc(size_t size) {
  if (size > ~size_t{0} - kHardwarePage) {
    errno = ENOMEM;
    return nullptr;
  }
  return heap::allocate_aligned(kHardwarePage, (size + kHardwarePage - 1) & ~(kHardwarePage - 1));
}
}  // extern "C"
}  // namespace multigrain

#endif
