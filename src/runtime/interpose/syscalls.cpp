#include "runtime/interpose/syscalls.h"

namespace multigrain {

namespace detail {
constinit std::atomic<uintptr_t> g_shared_base{0};
constinit std::atomic<size_t> g_shared_size{0};
}  // namespace detail

void set_shared_region(const void* base, size_t size) {
  detail::g_shared_size.store(0, std::memory_order_seq_cst);
  detail::g_shared_base.store(reinterpret_cast<uintptr_t>(base), std::memory_order_seq_cst);
  detail::g_shared_size.store(size, std::memory_order_seq_cst);
}

}  // namespace multigrain
