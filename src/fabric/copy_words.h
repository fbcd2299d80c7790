// Copies to and from memory that other nodes use meanwhile. Every aligned 64-bit word that a copy covers wholly is
// moved as one word, once (fabric.h, Words).
//
// memcpy does not do that. It moves both ends of a copy by vectors that overlap: a word there is stored in two parts if
// the copy does not end at the word's end, and twice if the copy is short, which undoes an atomic of another node that
// comes in between. And it aligns its vectors to the target, to which the source's words need not be aligned.
//
// Messages and atomics order these accesses with those of other nodes, and the thread sanitizer may not see them: they
// pass through UCX, or through another mapping of the memory. So these functions are not instrumented. (Clang's
// no_sanitize would still instrument the atomic accesses.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace multigrain {

#if defined(__clang__)
#define MULTIGRAIN_NOT_FOR_TSAN __attribute__((disable_sanitizer_instrumentation))
#else
#define MULTIGRAIN_NOT_FOR_TSAN __attribute__((no_sanitize("thread")))
#endif

inline constexpr size_t kWordBytes = sizeof(uint64_t);

// Returns how many bytes come before the first word that begins at `at` or behind it.
inline size_t bytes_to_word(const std::byte* at) {
  return -reinterpret_cast<uintptr_t>(at) % kWordBytes;
}

// Copies to memory that other nodes use, `to`; `from` may lie anywhere.
MULTIGRAIN_NOT_FOR_TSAN inline void put_words(std::byte* to, const std::byte* from, size_t length) {
  size_t head = std::min(length, bytes_to_word(to));
  for (length -= head; head != 0; --head) *to++ = *from++;
  for (; length >= kWordBytes; length -= kWordBytes, to += kWordBytes, from += kWordBytes) {
    uint64_t word;
    __builtin_memcpy(&word, from, kWordBytes);
    __atomic_store_n(reinterpret_cast<uint64_t*>(to), word, __ATOMIC_RELAXED);
  }
  for (; length != 0; --length) *to++ = *from++;
}

// Copies from memory that other nodes use, `from`; `to` may lie anywhere.
MULTIGRAIN_NOT_FOR_TSAN inline void get_words(std::byte* to, const std::byte* from, size_t length) {
  size_t head = std::min(length, bytes_to_word(from));
  for (length -= head; head != 0; --head) *to++ = *from++;
  for (; length >= kWordBytes; length -= kWordBytes, to += kWordBytes, from += kWordBytes) {
    const uint64_t word = __atomic_load_n(reinterpret_cast<const uint64_t*>(from), __ATOMIC_RELAXED);
    __builtin_memcpy(to, &word, kWordBytes);
  }
  for (; length != 0; --length) *to++ = *from++;
}

#undef MULTIGRAIN_NOT_FOR_TSAN

}  // namespace multigrain
