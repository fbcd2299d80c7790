// Line protocols use these functions to access the frames and hazards of their own node (docs/internals/fine-grain.md):
// they fill with the flag value, copy, and publish a hazard.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/spin_lock.h"
#include "base/steps.h"
#include "coherence/line_memory.h"
#include "memory/checked_memory.h"

namespace multigrain {

// Fills a whole number of words.
inline void fill_with_flags(std::byte* frame, size_t bytes) {
  auto* const words = reinterpret_cast<uint64_t*>(frame);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
    MULTIGRAIN_STEP(&words[i]);
    std::atomic_ref<uint64_t>(words[i]).store(MG_FINE_FLAG64, std::memory_order_relaxed);
  }
}

// These copy between a frame and private memory. They access the frame once if one instruction can do it.
inline void copy_out(std::span<std::byte> out, const std::byte* from) {
  const auto one = [&](auto sample) {
    using Word = decltype(sample);
    if (out.size() != sizeof(Word) || reinterpret_cast<uintptr_t>(from) % sizeof(Word) != 0) return false;
    const Word value = __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_RELAXED);
    std::memcpy(out.data(), &value, sizeof value);
    return true;
  };
  if (!one(uint64_t{}) && !one(uint32_t{}) && !one(uint16_t{})) std::memcpy(out.data(), from, out.size());
}
inline void copy_in(std::byte* to, std::span<const std::byte> value) {
  const auto one = [&](auto sample) {
    using Word = decltype(sample);
    if (value.size() != sizeof(Word) || reinterpret_cast<uintptr_t>(to) % sizeof(Word) != 0) return false;
    Word word;
    std::memcpy(&word, value.data(), sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELAXED);
    return true;
  };
  if (!one(uint64_t{}) && !one(uint32_t{}) && !one(uint16_t{})) std::memcpy(to, value.data(), value.size());
}

// Returns whether one of the aligned words that hold [from, from + bytes) has the flag value.
inline bool holds_flag(const std::byte* from, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(from) & ~uintptr_t{3};
  const auto end = reinterpret_cast<uintptr_t>(from) + bytes;
  for (uintptr_t at = begin; at < end; at += sizeof(uint32_t))
    if (__atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_RELAXED) == MG_FINE_FLAG32) return true;
  return false;
}

// These publish and clear hazard 0 of the calling thread. Publishing is a full fence: if a requester revoked a right
// without having seen the hazard, then what the thread reads afterwards shows that the right is revoked.
inline void publish_hazard(uint64_t hazard) {
  MULTIGRAIN_STEP(__multigrain_hazards);
  std::atomic_ref<uint64_t>(__multigrain_hazards[0]).exchange(hazard, std::memory_order_seq_cst);
}
inline void clear_hazard() {
  MULTIGRAIN_STEP(__multigrain_hazards);
  std::atomic_ref<uint64_t>(__multigrain_hazards[0]).store(0, std::memory_order_release);
}

// A line protocol has such a record for each page.
struct LinePage {
  SpinLock lock;                           // held during the page's first touch
  std::atomic<uint16_t> home_plus_one{0};  // 0: not settled yet
  std::atomic<uint8_t> grain{0};           // 0: not looked up yet; otherwise 1 + Grain
  std::atomic<bool> touched{false};        // the frame is initialised, the view has its rights
  std::atomic<uint32_t> block_lines{0};    // lines that move together; valid with the grain
  std::atomic<uint32_t> cost{0};           // of misses (LineKeeper::cost)
};

}  // namespace multigrain
