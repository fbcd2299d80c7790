#include "guest/thread_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace multigrain::guest {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = (sizeof(ThreadBlock) + kPage - 1) / kPage * kPage;
static_assert(kGuard + kPage <= kBlockSize / 2);

}  // namespace

stack_t ThreadBlock::stack() const {
  auto* const base = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(this));
  return {.ss_sp = base + kGuard + kPage, .ss_flags = 0, .ss_size = kBlockSize - kGuard - kPage};
}

pid_t number_of(const ThreadBlock& thread) {
  return thread.tid != 0 ? thread.tid : gettid();
}

Result<ThreadBlock*> create_block() {
  // Twice as much memory is mapped, so that an aligned part of it can stay.
  void* const found =
      mmap(nullptr, 2 * kBlockSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return fail_errno(errno, "cannot reserve the stack of a guest's signal handlers");
  auto* const first = static_cast<std::byte*>(found);
  const size_t before = -reinterpret_cast<uintptr_t>(first) % kBlockSize;
  std::byte* const base = first + before;
  if (before != 0) munmap(first, before);
  munmap(base + kBlockSize, kBlockSize - before);
  mprotect(base + kGuard, kPage, PROT_NONE);
  auto* const block = new (base) ThreadBlock;
  block->stack_top = reinterpret_cast<uint64_t>(base + kBlockSize);
  return block;
}

void destroy_block(ThreadBlock* block) {
  munmap(block, kBlockSize);
}

}  // namespace multigrain::guest
