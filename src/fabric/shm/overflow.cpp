#include "fabric/shm/overflow.h"

#include <cstring>
#include <new>

namespace multigrain {

OverflowEntry* OverflowPool::allocate(size_t payload) {
  const LockGuard guard(lock_);
  return new (blocks_.allocate(sizeof(OverflowEntry) + payload)) OverflowEntry{};
}

void OverflowPool::release(OverflowEntry* entry) {
  const LockGuard guard(lock_);
  blocks_.release(entry);
}

void OverflowQueue::append(OverflowPool& pool, const Record& record, std::span<const std::byte> payload) {
  OverflowEntry* entry = pool.allocate(payload.size());
  entry->record = record;
  entry->payload_length = static_cast<uint32_t>(payload.size());
  if (!payload.empty()) std::memcpy(entry->payload(), payload.data(), payload.size());
  if (first_ == nullptr) {
    first_ = entry;
  } else {
    last_->next = entry;
  }
  last_ = entry;
}

bool OverflowQueue::drain_into(RingProducer& ring, OverflowPool& pool) {
  while (first_ != nullptr) {
    OverflowEntry* entry = first_;
    if (!ring.try_push(entry->record, {entry->payload(), entry->payload_length})) return false;
    first_ = entry->next;
    pool.release(entry);
  }
  last_ = nullptr;
  return true;
}

}  // namespace multigrain
