// Messages that a handler sent while the ring was full are kept here, in order, until there is room: a handler may not
// wait, and a message may not be dropped.
//
// Memory comes from mmap (a handler may run in the fault handler, where malloc is forbidden), is reused by size class,
// and goes back when the fabric ends. There is a limit: a protocol that exceeds it sends without ever receiving an
// answer, and is broken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "fabric/shm/ring.h"

namespace multigrain {

struct OverflowEntry {
  OverflowEntry* next;
  uint32_t size_class;
  uint32_t payload_length;
  Record record;  // the payload follows

  [[nodiscard]] std::byte* payload() { return reinterpret_cast<std::byte*>(this + 1); }
};

// Memory for entries. It is thread-safe and async-signal-safe.
class OverflowPool {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 30;

  OverflowPool() = default;
  OverflowPool(const OverflowPool&) = delete;
  OverflowPool& operator=(const OverflowPool&) = delete;
  ~OverflowPool();

  // Returns room for a record with a payload of at most Fabric::kMaxPayload bytes. Ends the run beyond kMaxBytes.
  OverflowEntry* allocate(size_t payload);
  void release(OverflowEntry* entry);

 private:
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  static constexpr unsigned kSmallestShift = 7;
  static constexpr unsigned kClasses = 11;  // 128 bytes .. 128 KiB
  static_assert((size_t{1} << (kSmallestShift + kClasses - 1)) >= sizeof(OverflowEntry) + Fabric::kMaxPayload);

  struct alignas(64) Chunk {
    Chunk* next;
  };

  SpinLock lock_;
  std::array<OverflowEntry*, kClasses> free_ MG_GUARDED_BY(lock_){};
  Chunk* chunks_ MG_GUARDED_BY(lock_) = nullptr;
  size_t used_in_chunk_ MG_GUARDED_BY(lock_) = kChunkBytes;
  size_t mapped_bytes_ MG_GUARDED_BY(lock_) = 0;
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
