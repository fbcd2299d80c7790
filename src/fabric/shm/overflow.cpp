#include "fabric/shm/overflow.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

namespace multigrain {

OverflowPool::~OverflowPool() {
  while (chunks_ != nullptr) {
    Chunk* next = chunks_->next;
    munmap(chunks_, kChunkBytes);
    chunks_ = next;
  }
}

OverflowEntry* OverflowPool::allocate(size_t payload) {
  const size_t need = sizeof(OverflowEntry) + payload;
  const unsigned shift = static_cast<unsigned>(std::bit_width(need - 1));
  const uint32_t size_class = shift <= kSmallestShift ? 0 : shift - kSmallestShift;
  const LockGuard guard(lock_);
  OverflowEntry* entry = free_[size_class];
  if (entry != nullptr) {
    free_[size_class] = entry->next;
  } else {
    const size_t bytes = size_t{1} << (size_class + kSmallestShift);
    if (used_in_chunk_ + bytes > kChunkBytes) {
      if (mapped_bytes_ == kMaxBytes)
        panic("messages that wait for room in a queue exceed this many bytes:", kMaxBytes);
      void* memory = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED)
        panic("no memory for messages that wait for room in a queue; bytes in use:", mapped_bytes_);
      chunks_ = new (memory) Chunk{chunks_};
      used_in_chunk_ = sizeof(Chunk);
      mapped_bytes_ += kChunkBytes;
    }
    entry = reinterpret_cast<OverflowEntry*>(reinterpret_cast<std::byte*>(chunks_) + used_in_chunk_);
    used_in_chunk_ += bytes;
  }
  entry->next = nullptr;
  entry->size_class = size_class;
  return entry;
}

void OverflowPool::release(OverflowEntry* entry) {
  const LockGuard guard(lock_);
  entry->next = free_[entry->size_class];
  free_[entry->size_class] = entry;
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
