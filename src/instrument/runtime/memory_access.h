// These are loads and stores of whole ranges. The runtime's entries and the wrappers of library functions use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "instrument/abi.h"

namespace multigrain::checks {

inline uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// Every entry calls this first. It clears all hazards of the calling thread.
void begin_access();
// These load or store line by line, from or to shared or private memory.
void load(uintptr_t address, size_t size, std::byte* value);
void store(uintptr_t address, size_t size, const std::byte* value);
// Does what __multigrain_batch_begin does. The caller has called begin_access().
bool begin_batch(std::span<const mg_fine_run> runs, bool pages = true);
// Publishes hazards for stores over all lines of a shared object. It tries until it succeeds. The caller has
// called begin_access().
void publish_over_object(uintptr_t address, size_t size);

// Copies so that naturally aligned words of up to 8 bytes are read and written at once, as the
// program's own access would.
inline void copy_once(std::byte* to, const std::byte* from, size_t size) {
  const auto copy = [&]<typename Word>(Word) {
    Word word = *reinterpret_cast<const volatile Word*>(from);
    *reinterpret_cast<volatile Word*>(to) = word;
    from += sizeof(Word), to += sizeof(Word), size -= sizeof(Word);
  };
  while (size > 0) {
    if (size >= 8)
      copy(uint64_t{});
    else if (size >= 4)
      copy(uint32_t{});
    else if (size >= 2)
      copy(uint16_t{});
    else
      copy(uint8_t{});
  }
}

}  // namespace multigrain::checks
