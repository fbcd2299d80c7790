#include "runtime/interpose/syscalls.h"

#include <algorithm>

#include "base/error.h"

namespace multigrain {

namespace detail {
constinit std::atomic<uintptr_t> g_shared_base{0};
constinit std::atomic<size_t> g_shared_size{0};
constinit SharedPart g_shared_parts[kMaxSharedParts]{};
constinit std::atomic<size_t> g_shared_part_count{0};

bool in_shared_part(const void* address, size_t count) {
  return std::any_of(g_shared_parts, g_shared_parts + count, [address](const SharedPart& part) {
    return reinterpret_cast<uintptr_t>(address) - part.base < part.size;
  });
}
constinit std::atomic<void (*)(const void*, size_t, void*)> g_load{nullptr};
constinit std::atomic<void (*)(void*, size_t, const void*)> g_store{nullptr};
}  // namespace detail

void set_shared_region(const void* base, size_t size) {
  detail::g_shared_size.store(0, std::memory_order_seq_cst);
  detail::g_shared_base.store(reinterpret_cast<uintptr_t>(base), std::memory_order_seq_cst);
  detail::g_shared_size.store(size, std::memory_order_seq_cst);
}

void add_shared_part(const void* base, size_t size) {
  const size_t parts = detail::g_shared_part_count.load(std::memory_order_relaxed);
  MG_CHECK(parts < detail::kMaxSharedParts);
  detail::g_shared_parts[parts] = {.base = reinterpret_cast<uintptr_t>(base), .size = size};
  detail::g_shared_part_count.store(parts + 1, std::memory_order_release);
}

void forget_shared_parts() {
  detail::g_shared_part_count.store(0, std::memory_order_release);
}

void set_shared_copies(void (*load)(const void*, size_t, void*), void (*store)(void*, size_t, const void*)) {
  detail::g_load.store(load, std::memory_order_relaxed);
  detail::g_store.store(store, std::memory_order_relaxed);
}

namespace {

// Copies go in pieces that do not cross a border beyond which the memory may not be allocated.
constexpr size_t kPiece = 256;

size_t piece_at(const void* address, size_t size) {
  return std::min(size, kPiece - reinterpret_cast<uintptr_t>(address) % kPiece);
}

}  // namespace

size_t length_of_shared(const char* string) {
  if (!in_shared_region(string) || detail::g_load.load(std::memory_order_relaxed) == nullptr)
    return std::strlen(string);
  char piece[kPiece];
  for (size_t length = 0;;) {
    const size_t size = piece_at(string + length, kPiece);
    copy_from_shared(piece, string + length, size);
    if (const void* const end = std::memchr(piece, 0, size))
      return length + static_cast<size_t>(static_cast<const char*>(end) - piece);
    length += size;
  }
}

bool differ_from_shared(const void* shared, const void* bytes, size_t size) {
  if (detail::g_load.load(std::memory_order_relaxed) == nullptr) return std::memcmp(shared, bytes, size) != 0;
  std::byte piece[kPiece];
  for (size_t done = 0; done < size;) {
    const auto* const at = static_cast<const std::byte*>(shared) + done;
    const size_t here = piece_at(at, size - done);
    copy_from_shared(piece, at, here);
    if (std::memcmp(piece, static_cast<const std::byte*>(bytes) + done, here) != 0) return true;
    done += here;
  }
  return false;
}

}  // namespace multigrain
