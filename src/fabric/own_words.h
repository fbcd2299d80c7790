// Atomics on the words of one of the node's own segments, where they cost what the processor's instructions cost: without a
// call, without a check of the range. They agree with the remote atomics of other nodes (Fabric::own_segment).
#pragma once

#include <atomic>
#include <cstdint>

#include "fabric/fabric.h"

namespace multigrain {

class OwnWords {
 public:
  // `fabric` outlives this object. `direct`: where the segment is mapped as a whole, the operations do not go through
  // the fabric, so a fabric that observes or charges for them must not be asked for that.
  OwnWords(Fabric& fabric, bool direct, SegmentId segment = SegmentId::kWords)
      : fabric_(fabric), segment_(segment), words_(direct ? fabric.own_segment(segment).data() : nullptr) {}

  [[nodiscard]] uint64_t load(uint64_t offset) const {
    return words_ != nullptr ? word(offset).load() : fabric_.load_own(segment_, offset);
  }
  // These return the old value.
  uint64_t exchange(uint64_t offset, uint64_t value) {
    return words_ != nullptr ? word(offset).exchange(value)
                             : fabric_.fetch_and_set(fabric_.self(), segment_, offset, value);
  }
  uint64_t add(uint64_t offset, uint64_t addend) {
    return words_ != nullptr ? word(offset).fetch_add(addend)
                             : fabric_.fetch_add(fabric_.self(), segment_, offset, addend);
  }
  uint64_t compare_and_swap(uint64_t offset, uint64_t expected, uint64_t desired) {
    if (words_ == nullptr) return fabric_.compare_and_swap(fabric_.self(), segment_, offset, expected, desired);
    word(offset).compare_exchange_strong(expected, desired);
    return expected;
  }

 private:
  [[nodiscard]] std::atomic_ref<uint64_t> word(uint64_t offset) const {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(words_ + offset));
  }

  Fabric& fabric_;
  const SegmentId segment_;
  std::byte* const words_;
};

}  // namespace multigrain
