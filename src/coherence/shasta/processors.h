// This is what the processors of a node have outstanding for all blocks together: queued stores, and what fences wait
// for ([Shasta], sections 2.1 and 3.2.3). A processor here is a number within its node.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bit_set.h"
#include "base/ids.h"

namespace multigrain::shasta {

// This is the number of a block of the shared region. The driver assigns the numbers.
using BlockId = StrongId<struct BlockTag, uint64_t>;

// The memory model (section 3.2.3) says when a store that misses retires, and what a fence waits for.
enum class Model : uint8_t {
  kSc,  // the processor stalls until its store is complete
  kRc,  // it runs on; fences wait for acknowledgements
};

// A set of processors of one node, by their numbers in the node.
using ProcessorSet = BitSet<unsigned>;

// The queue has the stores that have missed and are not made yet, oldest first. The driver keeps their values.
class StoreQueue {
 public:
  static constexpr size_t kCapacity = 16;
  struct Entry {
    BlockId block;
    bool waits = false;            // the processor waits for it; it masks nothing
    bool requests_hazard = false;  // no store but on_request_hazard()
    bool operator==(const Entry&) const = default;
  };
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool full() const { return size_ == kCapacity; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] const Entry& operator[](size_t i) const { return entries_[i]; }
  [[nodiscard]] bool has_waiting() const;
  // Returns whether the queue has a store to the block that masks words (Verb::kMask).
  [[nodiscard]] bool masks(BlockId block) const;
  // Returns the index of the oldest entry of the block, or size().
  [[nodiscard]] size_t find(BlockId block) const;
  void push(Entry entry);
  void erase(size_t i);

 private:
  std::array<Entry, kCapacity> entries_{};
  uint8_t size_ = 0;
};

// This counts what a fence has to wait for under rc, for the whole node. A store may be seen by the node's other
// processors while acknowledgements are missing, and what they write after a fence of theirs must not overtake it. Each
// request counts in the epoch in which it was made; a fence ends the epoch, and waits for that and all earlier ones.
class FenceEpochs {
 public:
  // There is one epoch more than processors can wait in fences.
  static constexpr size_t kCapacity = ProcessorSet::kCapacity + 1;
  // A request begins for which fences wait. Returns the epoch with which to end it.
  uint64_t begin();
  void end(uint64_t epoch);
  // Ends the current epoch if anything counts in it. Returns the epoch with which to ask has_passed().
  uint64_t fence();
  [[nodiscard]] bool has_passed(uint64_t epoch) const { return oldest_ > epoch; }
  [[nodiscard]] bool idle() const { return oldest_ == current_ && counts_[current_ % kCapacity] == 0; }
  [[nodiscard]] uint64_t oldest() const { return oldest_; }
  [[nodiscard]] uint64_t current() const { return current_; }
  [[nodiscard]] unsigned count(uint64_t epoch) const { return counts_[epoch % kCapacity]; }

 private:
  void retire();
  uint64_t oldest_ = 1;
  uint64_t current_ = 1;
  std::array<uint16_t, kCapacity> counts_{};
};

struct Processor {
  bool fencing = false;
  uint64_t fence = 0;
  StoreQueue queue;
};

struct Node {
  std::span<Processor> processors;
  FenceEpochs& epochs;
};

}  // namespace multigrain::shasta
