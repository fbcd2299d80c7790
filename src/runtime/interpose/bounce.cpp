#include "runtime/interpose/bounce.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/error.h"

namespace multigrain {
namespace {

constexpr size_t kSlots = 8;
constinit std::array<std::atomic<bool>, kSlots> g_taken{};
// The pool is page-aligned and untouched until it is used, so it costs address space only.
alignas(4096) std::byte g_pool[kSlots][Bounce::kPooled];

}  // namespace

std::byte* Bounce::acquire(size_t size) {
  if (size <= kPooled) {
    for (size_t i = 0; i < kSlots; ++i) {
      if (g_taken[i].load(std::memory_order_relaxed) || g_taken[i].exchange(true, std::memory_order_acquire)) continue;
      return bytes_ = g_pool[i];
    }
  }
  const size_t length = std::max<size_t>(size, 1);
  void* mapped = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    errno = ENOMEM;
    return nullptr;
  }
  mapped_ = length;
  return bytes_ = static_cast<std::byte*>(mapped);
}

std::byte* Bounce::acquire_or_die(size_t size) {
  std::byte* bytes = acquire(size);
  if (bytes == nullptr) die(1, "no memory for the argument of a system call; bytes:", size);
  return bytes;
}

void Bounce::release() {
  const int saved = errno;
  if (mapped_ != 0) {
    ::munmap(bytes_, mapped_);
  } else {
    const auto slot = static_cast<size_t>(bytes_ - g_pool[0]) / kPooled;
    g_taken[slot].store(false, std::memory_order_release);
  }
  errno = saved;
}

void InString::copy() {
  const size_t size = length_of_shared(string_) + 1;
  std::byte* copy = bounce_.acquire_or_die(size);
  copy_from_shared(copy, string_, size);
  copy[size - 1] = std::byte{0};  // another processor may have changed the string meanwhile
  string_ = reinterpret_cast<const char*>(copy);
}

InStrings::InStrings(char* const* strings) : strings_(strings) {
  if (strings == nullptr) return;
  bool shared = in_shared_region(strings);
  const auto string = [strings, array_is_shared = shared](size_t i) {
    if (!array_is_shared) return strings[i];
    char* pointer;
    copy_from_shared(&pointer, strings + i, sizeof pointer);
    return pointer;
  };
  size_t count = 0;
  size_t characters = 0;
  for (; string(count) != nullptr; ++count) {
    shared = shared || in_shared_region(string(count));
    characters += length_of_shared(string(count)) + 1;
  }
  if (!shared) return;
  std::byte* bytes = bounce_.acquire_or_die((count + 1) * sizeof(char*) + characters + 1);
  auto** pointers = reinterpret_cast<char**>(bytes);
  auto* text = reinterpret_cast<char*>(pointers + count + 1);
  char* const end = text + characters;
  *end = '\0';  // other processors may lengthen the strings meanwhile
  for (size_t i = 0; i < count; ++i) {
    const char* const original = string(i);
    const size_t size = std::min(length_of_shared(original) + 1, static_cast<size_t>(end - text));
    copy_from_shared(text, original, size);
    pointers[i] = text;
    text += size;
  }
  pointers[count] = nullptr;
  strings_ = pointers;
}

}  // namespace multigrain
