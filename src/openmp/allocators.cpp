// The memory of omp.h: omp_alloc and its family, whatever the allocator, is shared memory under the page protocol, so that all threads
// of a region may use it. Allocators have an alignment, and what is to be done if no memory is left.
#include <multigrain/multigrain.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "openmp/memory.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

struct Trait {
  int32_t key;
  uintptr_t value;
};
enum : int32_t { kAlignment = 2, kFallback = 5, kFallbackData = 6 };
enum : uintptr_t { kDefaultFallback = 11, kNullFallback = 12, kAbortFallback = 13, kAllocatorFallback = 14 };
constexpr uintptr_t kLastPredefined = 102;
constexpr uintptr_t kDefaultAllocator = 1;

struct Allocator {
  size_t alignment;
  uintptr_t fallback;
  uintptr_t fallback_data;
};

// Stands directly in front of what the program gets.
struct Header {
  void* block;
  size_t bytes;
};
constexpr size_t kSmallestAlignment = 16;
static_assert(sizeof(Header) == kSmallestAlignment);

Header& header_of(void* memory) {
  return static_cast<Header*>(memory)[-1];
}

const Allocator* made_allocator(uintptr_t handle) {
  return handle > kLastPredefined ? reinterpret_cast<const Allocator*>(handle) : nullptr;
}

void* allocate(size_t alignment, size_t bytes, uintptr_t handle) {
  if (bytes == 0) return nullptr;
  if (handle == 0) handle = this_thread().frame->controls.default_allocator;
  const Allocator* const allocator = made_allocator(handle);
  if (allocator != nullptr) alignment = std::max(alignment, allocator->alignment);
  alignment = std::max(alignment, kSmallestAlignment);
  auto* const block = bytes <= SIZE_MAX - alignment
                          ? static_cast<std::byte*>(try_allocate_shared(bytes + alignment, alignment))
                          : nullptr;
  if (block == nullptr) {
    if (allocator != nullptr && allocator->fallback == kAbortFallback)
      end_run("omp_alloc: no memory is left for an allocator with abort_fb; bytes wanted:", bytes);
    if (allocator != nullptr && allocator->fallback == kAllocatorFallback)
      return allocate(alignment, bytes, allocator->fallback_data);
    return nullptr;
  }
  void* const memory = block + alignment;
  header_of(memory) = {block, bytes};
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) mg_free(header_of(memory).block);
}

void* allocate_zeroed(size_t alignment, size_t count, size_t size, uintptr_t handle) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return nullptr;
  // Memory of mg_alloc is zero.
  return allocate(alignment, bytes, handle);
}

void* reallocate(void* memory, size_t bytes, uintptr_t handle) {
  if (bytes == 0) {
    release(memory);
    return nullptr;
  }
  void* const larger = allocate(0, bytes, handle);
  if (memory == nullptr || larger == nullptr) return larger;
  std::memcpy(larger, memory, std::min(bytes, header_of(memory).bytes));
  release(memory);
  return larger;
}

uintptr_t make_allocator(int count, const Trait* traits) {
  Allocator made{kSmallestAlignment, kDefaultFallback, kDefaultAllocator};
  for (int i = 0; i < count; ++i) {
    if (traits[i].key == kAlignment) made.alignment = std::bit_ceil(traits[i].value);
    if (traits[i].key == kFallback) made.fallback = traits[i].value;
    if (traits[i].key == kFallbackData) made.fallback_data = traits[i].value;
  }
  auto* const allocator = static_cast<Allocator*>(try_allocate_shared(sizeof(Allocator), 0));
  if (allocator == nullptr) return 0;
  *allocator = made;
  return reinterpret_cast<uintptr_t>(allocator);
}

void destroy_allocator(uintptr_t handle) {
  if (made_allocator(handle) != nullptr) mg_free(reinterpret_cast<void*>(handle));
}

}  // namespace

MG_OPENMP_BEGIN

void* omp_alloc(size_t bytes, uintptr_t allocator) {
  return allocate(0, bytes, allocator);
}
void* omp_aligned_alloc(size_t alignment, size_t bytes, uintptr_t allocator) {
  return allocate(alignment, bytes, allocator);
}
void* omp_calloc(size_t count, size_t size, uintptr_t allocator) {
  return allocate_zeroed(0, count, size, allocator);
}
void* omp_aligned_calloc(size_t alignment, size_t count, size_t size, uintptr_t allocator) {
  return allocate_zeroed(alignment, count, size, allocator);
}
void* omp_realloc(void* memory, size_t bytes, uintptr_t allocator, uintptr_t) {
  return reallocate(memory, bytes, allocator);
}
void omp_free(void* memory, uintptr_t) {
  release(memory);
}
uintptr_t omp_init_allocator(uintptr_t, int count, const Trait* traits) {
  return make_allocator(count, traits);
}
void omp_destroy_allocator(uintptr_t allocator) {
  destroy_allocator(allocator);
}
void omp_set_default_allocator(uintptr_t allocator) {
  if (allocator != 0) this_thread().frame->controls.default_allocator = allocator;
}
uintptr_t omp_get_default_allocator(void) {
  return this_thread().frame->controls.default_allocator;
}

// Clauses and directives of allocation call these.
void* __kmpc_alloc(int32_t, size_t bytes, uintptr_t allocator) {
  return allocate(0, bytes, allocator);
}
void* __kmpc_aligned_alloc(int32_t, size_t alignment, size_t bytes, uintptr_t allocator) {
  return allocate(alignment, bytes, allocator);
}
void* __kmpc_calloc(int32_t, size_t count, size_t size, uintptr_t allocator) {
  return allocate_zeroed(0, count, size, allocator);
}
void* __kmpc_realloc(int32_t, void* memory, size_t bytes, uintptr_t allocator, uintptr_t) {
  return reallocate(memory, bytes, allocator);
}
void __kmpc_free(int32_t, void* memory, uintptr_t) {
  release(memory);
}
uintptr_t __kmpc_init_allocator(int32_t, uintptr_t, int count, const Trait* traits) {
  return make_allocator(count, traits);
}
void __kmpc_destroy_allocator(int32_t, uintptr_t allocator) {
  destroy_allocator(allocator);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
