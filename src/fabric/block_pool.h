// Memory for messages on their way. It comes from mmap, because the fault handler needs it, where malloc is forbidden.
//
// Blocks are reused by size class; memory goes back when the pool ends. There is a limit: a protocol that exceeds it
// sends without ever receiving an answer, and is broken. One thread at a time may use the pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace multigrain {

class BlockPool {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 30;
  static constexpr size_t kMaxBlock = size_t{512} << 10;

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // Returns a block that is aligned to 64 bytes. Ends the run beyond kMaxBytes.
  void* allocate(size_t bytes);
  void release(void* block);

 private:
  static constexpr size_t kChunk = size_t{2} << 20;
  static constexpr unsigned kSmallestShift = 8;
  static constexpr unsigned kClasses = 13;  // 256 bytes .. 1 MiB, header included

  struct alignas(64) Header {
    Header* next;
    uint32_t size_class;
  };
  static_assert((size_t{1} << (kSmallestShift + kClasses - 1)) >= sizeof(Header) + kMaxBlock);

  std::array<Header*, kClasses> free_{};
  Header* chunks_ = nullptr;
  size_t used_in_chunk_ = kChunk;
  size_t mapped_bytes_ = 0;
};

}  // namespace multigrain
