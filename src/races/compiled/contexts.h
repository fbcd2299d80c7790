// The calls that lead to an access, for reports. A *context* is a call, by where it returns to, and the context of the function
// that makes it; it has a number for all nodes, by which an access of long ago can still be told with its callers.
//
// Places: an access is at an instruction, in a context. Both go into one word. Code lies at addresses of 47 bits, which are the same
// on every node; the upper 7 are those of the object that is loaded where the lower 40 say.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "races/compiled/order.h"
#include "races/compiled/race_memory.h"

namespace multigrain::races {

class Contexts {
 public:
  static constexpr unsigned kAddressBits = 40;

  explicit Contexts(RaceMemory& memory) : memory_(&memory) {}

  // The thread has been called, and the call returns to `site`. `frame` is the stack pointer in the function that was called:
  // calls that were left without a return (longjmp) lie below it, and are forgotten.
  static void enter(Calls& calls, uintptr_t site, uintptr_t frame) {
    while (calls.depth != 0 && calls.depth <= Calls::kMost && calls.entry[calls.depth - 1].frame <= frame) leave(calls);
    if (calls.depth < Calls::kMost) calls.entry[calls.depth] = {frame, site, 0};
    ++calls.depth;
  }
  // It returns.
  static void leave(Calls& calls) {
    if (calls.depth == 0) return;
    --calls.depth;
    calls.numbered = std::min(calls.numbered, calls.depth);
  }
  // Returns the context of the innermost call that is known. Calls in which nothing is told get no number.
  [[nodiscard]] uint32_t context(Calls& calls) const {
    const uint32_t known = std::min(calls.depth, Calls::kMost);
    for (; calls.numbered < known; ++calls.numbered) {
      const uint32_t caller = calls.numbered == 0 ? 0 : calls.entry[calls.numbered - 1].context;
      calls.entry[calls.numbered].context = number_of(caller, calls.entry[calls.numbered].site);
    }
    return known == 0 ? 0 : calls.entry[known - 1].context;
  }

  [[nodiscard]] static uint64_t place(uintptr_t code, uint32_t context) {
    return (code & ((uint64_t{1} << kAddressBits) - 1)) | uint64_t{context} << kAddressBits;
  }
  // Returns the instruction's address. Takes the loader's lock.
  [[nodiscard]] static uint64_t code_of(uint64_t place);
  // Calls visit(return address) for the calls that led to the place, from the innermost on.
  template <typename Visit>
  void for_each_call(uint64_t place, Visit&& visit) const {
    for (uint64_t context = place >> kAddressBits; context != 0;) {
      const uint64_t key = memory_->contexts()[context].load(std::memory_order_relaxed);
      if (key == 0 || !visit(code_of(key))) return;
      context = key >> kAddressBits;
    }
  }

 private:
  // A context's number is where its key lies: the number of the caller's context, and the call. 0: none, or one too many.
  [[nodiscard]] uint32_t number_of(uint32_t caller, uintptr_t site) const {
    const uint64_t key = place(site, caller);
    uint64_t slot = (key * 0x9e3779b97f4a7c15u) >> (64 - 22);
    for (unsigned tries = 0; tries < 64; ++tries, slot = (slot + 1) % RaceMemory::kContexts) {
      if (slot == 0) continue;
      std::atomic<uint64_t>& entry = memory_->contexts()[slot];
      uint64_t found = entry.load(std::memory_order_relaxed);
      if (found == 0 && entry.compare_exchange_strong(found, key, std::memory_order_relaxed)) found = key;
      if (found == key) return static_cast<uint32_t>(slot);
    }
    return 0;
  }
  static_assert(RaceMemory::kContexts == size_t{1} << 22);

  RaceMemory* memory_;
};

}  // namespace multigrain::races
