#include "fabric/block_pool.h"

#include <sys/mman.h>

#include <bit>
#include <new>

#include "base/error.h"

namespace multigrain {

BlockPool::~BlockPool() {
  while (chunks_ != nullptr) {
    Header* const next = chunks_->next;
    munmap(chunks_, kChunk);
    chunks_ = next;
  }
}

void* BlockPool::allocate(size_t bytes) {
  MG_CHECK(bytes <= kMaxBlock, bytes);
  const auto shift = static_cast<unsigned>(std::bit_width(sizeof(Header) + bytes - 1));
  const uint32_t size_class = shift <= kSmallestShift ? 0 : shift - kSmallestShift;
  if (Header* const block = free_[size_class]; block != nullptr) {
    free_[size_class] = block->next;
    return block + 1;
  }
  const size_t whole = size_t{1} << (size_class + kSmallestShift);
  if (used_in_chunk_ + whole > kChunk) {
    if (mapped_bytes_ >= kMaxBytes) panic("messages that are on their way exceed this many bytes:", kMaxBytes);
    void* const memory = mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) panic("no memory for messages that are on their way; bytes in use:", mapped_bytes_);
    madvise(memory, kChunk, MADV_DONTDUMP);  // ucx's messages carry their pair's key
    chunks_ = new (memory) Header{chunks_, 0};
    used_in_chunk_ = sizeof(Header);
    mapped_bytes_ += kChunk;
  }
  auto* const place = reinterpret_cast<std::byte*>(chunks_) + used_in_chunk_;
  used_in_chunk_ += whole;
  return new (place) Header{nullptr, size_class} + 1;
}

void BlockPool::release(void* block) {
  Header* const header = static_cast<Header*>(block) - 1;
  header->next = free_[header->size_class];
  free_[header->size_class] = header;
}

}  // namespace multigrain
