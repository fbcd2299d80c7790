#include "coherence/placement/home_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/error.h"

namespace multigrain::placement {
namespace {

// The most bytes that an instruction moves, and one word more if it is not aligned.
constexpr size_t kMostWords = 5;

std::byte* bytes_of(uint64_t& word) {
  return reinterpret_cast<std::byte*>(&word);
}

}  // namespace

// A get would read the words as well, but over UCX it may read parts of two values of one (fabric.h, "Words").
void HomeMemory::load(uint64_t address, std::span<std::byte> out) {
  const uint64_t skipped = address % kWord;
  const size_t words = (skipped + out.size() + kWord - 1) / kWord;
  MG_CHECK(words <= kMostWords, out.size());
  const uint64_t first = offset_of_word(address);
  std::array<uint64_t, kMostWords> loaded{};
  if (words == 1) {
    loaded[0] = load_word(first);
  } else {
    std::array<Completion, kMostWords> under_way;
    for (size_t i = 0; i < words; ++i)
      under_way[i] = fabric_.start_fetch_add(home_, SegmentId::kFrames, first + i * kWord, 0, loaded[i]);
    for (size_t i = 0; i < words; ++i) fabric_.wait(under_way[i]);
  }
  std::memcpy(out.data(), bytes_of(loaded[0]) + skipped, out.size());
}

uint64_t HomeMemory::load_word(uint64_t offset) {
  if (std::byte* const here = fabric_.memory_of(home_, SegmentId::kFrames, offset, kWord))
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(here)).load(std::memory_order_seq_cst);
  return fabric_.fetch_add(home_, SegmentId::kFrames, offset, 0);
}

// A put of one word stores it once.
void HomeMemory::store(uint64_t address, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t here = std::min<size_t>(bytes.size(), kWord - address % kWord);
    if (here == kWord)
      fabric_.put(home_, SegmentId::kFrames, offset_of_word(address), bytes.first(here));
    else
      store_part(address, bytes.first(here));
    address += here;
    bytes = bytes.subspan(here);
  }
}

void HomeMemory::store_part(uint64_t address, std::span<const std::byte> bytes) {
  const uint64_t offset = offset_of_word(address);
  for (uint64_t old = load_word(offset);;) {
    uint64_t fresh = old;
    std::memcpy(bytes_of(fresh) + address % kWord, bytes.data(), bytes.size());
    const uint64_t found = swap_word(offset, old, fresh);
    if (found == old) return;
    old = found;
  }
}

uint64_t HomeMemory::swap_word(uint64_t offset, uint64_t expected, uint64_t desired) {
  return fabric_.compare_and_swap(home_, SegmentId::kFrames, offset, expected, desired);
}

// The other bytes of the word may change meanwhile: then it is tried again.
bool HomeMemory::compare_and_swap(uint64_t address, std::span<std::byte> expected, std::span<const std::byte> desired) {
  const uint64_t offset = offset_of_word(address);
  const uint64_t at = address % kWord;
  MG_CHECK(at + expected.size() <= kWord && desired.size() == expected.size(), address, expected.size());
  for (uint64_t old = load_word(offset);;) {
    if (std::memcmp(bytes_of(old) + at, expected.data(), expected.size()) != 0) {
      std::memcpy(expected.data(), bytes_of(old) + at, expected.size());
      return false;
    }
    uint64_t fresh = old;
    std::memcpy(bytes_of(fresh) + at, desired.data(), desired.size());
    const uint64_t found = swap_word(offset, old, fresh);
    if (found == old) return true;
    old = found;
  }
}

}  // namespace multigrain::placement
