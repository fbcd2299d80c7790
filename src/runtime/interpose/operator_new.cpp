// operator new, in front of the C++ library's. That calls malloc, which sees the C++ library as its caller, and cannot tell
// whether the program or the runtime has called that (shared_malloc.h). operator delete calls free, which knows the block.
#include <cstdlib>
#include <new>

#include "runtime/interpose/shared_malloc.h"

#if !defined(MULTIGRAIN_NO_MALLOC)

namespace multigrain {
namespace {

void* allocate(size_t size, size_t alignment, const void* caller) {
  if (const SharedMalloc* const shared = shared_malloc_for(caller))
    return shared->allocate(size, alignment, false, caller);
  if (size == 0) size = 1;
  return alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, (size + alignment - 1) & ~(alignment - 1));
}

// Asks the program's new handler for memory as long as there is one, as the standard prescribes.
void* allocate_or_throw(size_t size, size_t alignment, const void* caller) {
  while (true) {
    if (void* const block = allocate(size, alignment, caller)) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* allocate_or_null(size_t size, size_t alignment, const void* caller) noexcept {
  try {
    return allocate_or_throw(size, alignment, caller);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

size_t number(std::align_val_t alignment) {
  return static_cast<size_t>(alignment);
}

}  // namespace
}  // namespace multigrain

#define MG_NEW __attribute__((visibility("default"), used))

MG_NEW void* operator new(size_t size) {
  return multigrain::allocate_or_throw(size, 0, MG_CALLER);
}
MG_NEW void* operator new[](size_t size) {
  return multigrain::allocate_or_throw(size, 0, MG_CALLER);
}
MG_NEW void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return multigrain::allocate_or_null(size, 0, MG_CALLER);
}
MG_NEW void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return multigrain::allocate_or_null(size, 0, MG_CALLER);
}
MG_NEW void* operator new(size_t size, std::align_val_t alignment) {
  return multigrain::allocate_or_throw(size, multigrain::number(alignment), MG_CALLER);
}
MG_NEW void* operator new[](size_t size, std::align_val_t alignment) {
  return multigrain::allocate_or_throw(size, multigrain::number(alignment), MG_CALLER);
}
MG_NEW void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return multigrain::allocate_or_null(size, multigrain::number(alignment), MG_CALLER);
}
MG_NEW void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return multigrain::allocate_or_null(size, multigrain::number(alignment), MG_CALLER);
}

#endif
