// System calls and streams that are handed shared memory work as with any memory: the wrappers in this folder (io.cpp,
// stdio.cpp, sockets.cpp, files.cpp, system.cpp; bounce.h has the method) stand in front of the C library's functions.
// This header tells them where the shared region is; they ask with one comparison an argument.
//
// The wrappers copy in user mode, also from and to a shared address that belongs to no allocation: so where the kernel
// would return EFAULT the program gets the SIGSEGV of a wild access.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace multigrain {

namespace detail {
// Two words rather than one object with a lock: the size is 0 until the base is right, and neither changes afterwards.
extern std::atomic<uintptr_t> g_shared_base;
extern std::atomic<size_t> g_shared_size;
// Parts of the region that lie elsewhere. Entries before the count do not change.
struct SharedPart {
  uintptr_t base = 0;
  size_t size = 0;
};
inline constexpr size_t kMaxSharedParts = 64;
extern SharedPart g_shared_parts[kMaxSharedParts];
extern std::atomic<size_t> g_shared_part_count;
bool in_shared_part(const void* address, size_t count);
extern std::atomic<void (*)(const void*, size_t, void*)> g_load;
extern std::atomic<void (*)(void*, size_t, const void*)> g_store;
}  // namespace detail

// Tells the wrappers where the view of the shared region is. The runtime calls it once, when it has reserved the
// region; before that, no address is shared. Size 0 turns the wrappers off again.
void set_shared_region(const void* base, size_t size);

// Tells them of a part of the region that lies elsewhere (Region::move_view). Called at most kMaxSharedParts times, by
// one thread at a time.
void add_shared_part(const void* base, size_t size);
// All such parts are private memory again.
void forget_shared_parts();

// Returns whether the address is in the shared region. Async-signal-safe.
inline bool in_shared_region(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) - detail::g_shared_base.load(std::memory_order_relaxed) <
      detail::g_shared_size.load(std::memory_order_relaxed))
    return true;
  const size_t parts = detail::g_shared_part_count.load(std::memory_order_acquire);
  return parts != 0 && detail::in_shared_part(address, parts);
}

// Says how shared memory is copied, because ordinary loads and stores may not touch memory that is kept coherent by
// lines: by `load(from, size, to)` and `store(to, size, from)`. If they are nullptr, ordinary loads and stores may
// touch all of it.
void set_shared_copies(void (*load)(const void*, size_t, void*), void (*store)(void*, size_t, const void*));

// These are memcpy() with one side shared.
inline void* copy_from_shared(void* to, const void* from, size_t size) {
  if (auto* const load = detail::g_load.load(std::memory_order_relaxed)) {
    load(from, size, to);
    return to;
  }
  return std::memcpy(to, from, size);
}
inline void copy_to_shared(void* to, const void* from, size_t size) {
  if (auto* const store = detail::g_store.load(std::memory_order_relaxed))
    store(to, size, from);
  else
    std::memcpy(to, from, size);
}
// This is strlen() of a string that may be shared.
size_t length_of_shared(const char* string);
// Returns whether shared bytes differ from private ones.
bool differ_from_shared(const void* shared, const void* bytes, size_t size);

}  // namespace multigrain
