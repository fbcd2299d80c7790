// The malloc family of the process: node 0's heap must lie where it can be copied (private_heap.h). operator new and
// delete of the C++ library call these, so they need no counterpart here.
//
// mallinfo, mallopt, malloc_trim and malloc_info are not covered: they still speak of the C library's heap.
//
// The functions have other C++ names and the real assembler names, so that the C library's declarations, whose
// attributes (nonnull, alloc_size, throw()) would let the compiler drop the checks below, do not apply.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>

#include "runtime/interpose/shared_malloc.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/private/private_heap.h"
#include "runtime/private/runtimes.h"

namespace multigrain {
namespace {
constinit std::atomic<const SharedMalloc*> g_shared{nullptr};
}  // namespace

void set_shared_malloc(const SharedMalloc* functions) {
  g_shared.store(functions, std::memory_order_release);
}

const SharedMalloc* shared_malloc_for(const void* caller) {
  const SharedMalloc* const functions = g_shared.load(std::memory_order_acquire);
  return functions != nullptr && !in_boot_heap_scope() && functions->is_for(caller) ? functions : nullptr;
}

const SharedMalloc* shared_malloc_of(const void* block) {
  const SharedMalloc* const functions = g_shared.load(std::memory_order_acquire);
  return functions != nullptr && functions->owns(block) ? functions : nullptr;
}
}  // namespace multigrain

#if !defined(MULTIGRAIN_NO_MALLOC)

#define MG_EXPORT(name) asm(#name) __attribute__((visibility("default"), used))

namespace multigrain {
namespace {
constexpr size_t kHardwarePage = 4096;

// Calls allocate(), for a runtime of threads on a node that takes copies of node 0's heap in the boot heap: the next
// copy must not overwrite what the runtime's variables, which are not copied, point to.
template <typename Allocate>
void* for_caller(const void* caller, Allocate allocate) {
  if (!takes_heap_copies() || !in_runtimes_code(caller)) [[likely]]
    return allocate();
  const BootHeapScope boot;
  return allocate();
}

void* aligned(size_t alignment, size_t size, const void* caller) {
  if (const SharedMalloc* const shared = shared_malloc_for(caller))
    return shared->allocate(size, alignment, false, caller);
  return for_caller(caller, [=] { return heap::allocate_aligned(alignment, size); });
}

void* aligned_or_errno(size_t alignment, size_t size, const void* caller) {
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned(alignment, size, caller);
}

void* resize(void* block, size_t size, const void* caller) {
  if (const SharedMalloc* const shared = block != nullptr ? shared_malloc_of(block) : shared_malloc_for(caller))
    return shared->reallocate(block, size, caller);
  return for_caller(caller, [=] { return heap::reallocate(block, size); });
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
  if (const SharedMalloc* const shared = shared_malloc_for(MG_CALLER))
    return shared->allocate(size, 0, false, MG_CALLER);
  return for_caller(MG_CALLER, [=] { return heap::allocate(size); });
}
void* mg_calloc(size_t count, size_t size) {
  size_t bytes;
  const SharedMalloc* const shared = shared_malloc_for(MG_CALLER);
  if (shared != nullptr && !__builtin_mul_overflow(count, size, &bytes))
    return shared->allocate(bytes, 0, true, MG_CALLER);
  return for_caller(MG_CALLER, [=] { return heap::allocate_zeroed(count, size); });
}
void* mg_realloc(void* block, size_t size) {
  return resize(block, size, MG_CALLER);
}
void mg_free_private(void* block) {
  if (const SharedMalloc* const shared = shared_malloc_of(block)) return shared->release(block);
  heap::release(block);
}
size_t mg_malloc_usable_size(void* block) {
  if (const SharedMalloc* const shared = shared_malloc_of(block)) return shared->usable_size(block);
  return heap::usable_size(block);
}

void* mg_reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return resize(block, bytes, MG_CALLER);
}

int mg_posix_memalign(void** out, size_t alignment, size_t size) {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;
  void* block = aligned(alignment, size, MG_CALLER);
  errno = saved;
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

void* mg_aligned_alloc(size_t alignment, size_t size) {
  return aligned_or_errno(alignment, size, MG_CALLER);
}

// Works like the C library's memalign, which rounds an alignment up to a power of two.
void* mg_memalign(size_t alignment, size_t size) {
  if (alignment > (~size_t{0} >> 1) + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return aligned(std::bit_ceil(std::max<size_t>(alignment, 1)), size, MG_CALLER);
}

void* mg_valloc(size_t size) {
  return aligned(kHardwarePage, size, MG_CALLER);
}

void* mg_pvalloc(size_t size) {
  if (size > ~size_t{0} - kHardwarePage) {
    errno = ENOMEM;
    return nullptr;
  }
  return aligned(kHardwarePage, (size + kHardwarePage - 1) & ~(kHardwarePage - 1), MG_CALLER);
}
}  // extern "C"
}  // namespace multigrain

#endif
