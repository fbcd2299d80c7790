// System calls and streams that are handed shared memory work as with any memory: the wrappers in this folder (io.cpp,
// stdio.cpp, sockets.cpp, files.cpp, system.cpp; bounce.h has the method) stand in front of the C library's functions.
// This header tells them where the shared region is; they ask with one comparison an argument.
//
// A shared address that no page of an allocation stands behind is met by a copy in user mode, so where the kernel would
// return EFAULT the program gets the SIGSEGV of a wild access.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace multigrain {

namespace detail {
// Two words rather than one object with a lock: the size is 0 until the base is right, and neither changes afterwards.
extern std::atomic<uintptr_t> g_shared_base;
extern std::atomic<size_t> g_shared_size;
}  // namespace detail

// Tells the wrappers where the view of the shared region is. Called once by the runtime when it has reserved it;
// before, no address is shared. Size 0 turns the wrappers off again.
void set_shared_region(const void* base, size_t size);

// Async-signal-safe.
inline bool in_shared_region(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - detail::g_shared_base.load(std::memory_order_relaxed) <
         detail::g_shared_size.load(std::memory_order_relaxed);
}

}  // namespace multigrain
