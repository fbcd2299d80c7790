// Shared memory in small blocks, for tasks. Each thread has lists of free blocks of its own, and takes more from the shared
// heap many at a time; a block goes to the list of the thread that frees it.
#include <array>
#include <bit>
#include <cstring>

#include "openmp/memory.h"
#include "openmp/tasks.h"

namespace multigrain::openmp {
namespace {

constexpr size_t kSmallest = 128;
constexpr unsigned kClasses = 7;  // up to 8192 bytes
constexpr size_t kAtOnce = size_t{1} << 16;

// Stands in front of each block.
struct alignas(16) Block {
  Block* next;
  uint64_t size_class;  // kClasses: the block has an allocation of its own
};

[[gnu::tls_model("initial-exec")]] constinit thread_local std::array<Block*, kClasses> t_free{};

constexpr size_t size_of(unsigned size_class) {
  return kSmallest << size_class;
}

void refill(unsigned size_class) {
  auto* const begin = static_cast<std::byte*>(allocate_shared(kAtOnce));
  for (size_t at = 0; at + size_of(size_class) <= kAtOnce; at += size_of(size_class)) {
    auto* const block = reinterpret_cast<Block*>(begin + at);
    block->size_class = size_class;
    block->next = t_free[size_class];
    t_free[size_class] = block;
  }
}

}  // namespace

void* allocate_task_memory(size_t bytes) {
  bytes += sizeof(Block);
  if (bytes > size_of(kClasses - 1)) {
    auto* const block = static_cast<Block*>(allocate_shared(bytes));
    block->size_class = kClasses;
    return block + 1;
  }
  const auto size_class = static_cast<unsigned>(std::bit_width((bytes - 1) / kSmallest));
  if (t_free[size_class] == nullptr) refill(size_class);
  Block* const block = t_free[size_class];
  t_free[size_class] = block->next;
  return block + 1;
}

void free_task_memory(void* memory) {
  Block* const block = static_cast<Block*>(memory) - 1;
  if (block->size_class >= kClasses) {
    free_shared(block);
    return;
  }
  block->next = t_free[block->size_class];
  t_free[block->size_class] = block;
}

}  // namespace multigrain::openmp
