// Atomics on the words of the node's own kWords segment, where they cost what the processor's instructions cost: without a
// call, without a check of the range. They agree with the remote atomics of other nodes (Fabric::own_segment).
#pragma once

#include <atomic>
#include <cstdint>

#include "fabric/fabric.h"

namespace multigrain {

class OwnWords {
 public:
  // `fabric` outlives this object. `direct`: where its kWords segment is mapped as a whole, the operations do not go
  // through it, so a fabric that observes or charges for them must not be asked for that.
  OwnWords(Fabric& fabric, bool direct)
      : fabric_(fabric), words_(direct ? fabric.own_segment(SegmentId::kWords).data() : nullptr) {}

  [[nodiscard]] uint64_t load(uint64_t offset) const {
    return words_ != nullptr ? word(offset).load() : fabric_.load_own(SegmentId::kWords, offset);
  }
  // These return the old value.
  uint64_t exchange(uint64_t offset, uint64_t value) {
    return words_ != nullptr ? word(offset).exchange(value)
                             : fabric_.fetch_and_set(fabric_.self(), SegmentId::kWords, offset, value);
  }
  uint64_t add(uint64_t offset, uint64_t addend) {
    return words_ != nullptr ? word(offset).fetch_add(addend)
                             : fabric_.fetch_add(fabric_.self(), SegmentId::kWords, offset, addend);
  }
  uint64_t compare_and_swap(uint64_t offset, uint64_t expected, uint64_t desired) {
    if (words_ == nullptr)
      return fabric_.compare_and_swap(fabric_.self(), SegmentId::kWords, offset, expected, desired);
    word(offset).compare_exchange_strong(expected, desired);
    return expected;
  }

 private:
  [[nodiscard]] std::atomic_ref<uint64_t> word(uint64_t offset) const {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(words_ + offset));
  }

  Fabric& fabric_;
  std::byte* const words_;
};

}  // namespace multigrain
