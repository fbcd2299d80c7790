// Messages that a handler sent while the ring was full are kept here, in order, until there is room: a handler may not
// wait, and a message may not be dropped.
//
// Their memory comes from a pool that needs no malloc, because a handler may run in the fault handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "fabric/block_pool.h"
#include "fabric/shm/ring.h"

namespace multigrain {

struct OverflowEntry {
  OverflowEntry* next;
  uint32_t payload_length;
  Record record;  // the payload follows

  [[nodiscard]] std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
};

// Memory for entries. It is thread-safe and async-signal-safe.
class OverflowPool {
 public:
  // Returns room for a record with a payload of at most Fabric::kMaxPayload bytes. Ends the run if the pool is at its
  // limit.
  OverflowEntry* allocate(size_t payload);
  void release(OverflowEntry* entry);

 private:
  static_assert(BlockPool::kMaxBlock >= sizeof(OverflowEntry) + Fabric::kMaxPayload);

  SpinLock lock_;
  BlockPool blocks_ MG_GUARDED_BY(lock_);
};

// The messages to one destination that wait for room. The lock of the destination's ring guards it.
class OverflowQueue {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  void append(OverflowPool& pool, const Record& record, std::span<const std::byte> payload);
  // Moves as many messages into the ring as fit. Returns whether the queue is empty now.
  bool drain_into(RingProducer& ring, OverflowPool& pool);

 private:
  OverflowEntry* first_ = nullptr;
  OverflowEntry* last_ = nullptr;
};

}  // namespace multigrain
