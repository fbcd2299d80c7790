// The tree reports a damaged heap through assert(), which allocates its message: with the tree's lock held
// that would hang.
#define BOOST_DISABLE_ASSERTS
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1  // GCC's name for it
#endif
#endif
#include "runtime/private/heap_engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.h"

namespace multigrain {
namespace {

namespace bi = boost::interprocess;

// Plain pointers rather than offset_ptr: the range has the same address everywhere.
using Tree = bi::rbtree_best_fit<bi::null_mutex_family, void*, HeapEngine::kAlignment>;

constexpr uint64_t kMagic = 0x4d47'6865'6170'0001;
constexpr size_t kPage = 4096;
constexpr size_t kMinGrowth = size_t{1} << 20;
// From this size on the kernel makes a zeroed block's zeros, which costs nothing for pages that are never touched.
constexpr size_t kZeroByMapping = size_t{256} << 10;
// A freed block of this size or more gives its pages back: they would otherwise stay and be copied to every node.
constexpr size_t kGiveBack = size_t{4} << 20;

// The tree hands out blocks of 16k + 8 usable bytes (a block may use the first word of the next block's header); k is
// the size class. The smallest class has k = 2.
constexpr size_t kMaxCached = 16 * 64 + 8;
constexpr unsigned kMinClass = 2;
constexpr unsigned class_for(size_t size) {
  return size <= 16 * kMinClass + 8 ? kMinClass : static_cast<unsigned>((size - 8 + 15) / 16);
}
constexpr size_t class_bytes(unsigned size_class) {
  return 16 * size_t{size_class} + 8;
}
// A list that grows beyond this length gives half of it back to the tree, where neighbours merge.
constexpr uint64_t max_length(unsigned size_class) {
  return std::max<uint64_t>(32, 32768 / class_bytes(size_class));
}

Tree& tree_at(uintptr_t base, size_t root_bytes) {
  return *reinterpret_cast<Tree*>(base + root_bytes);
}

void*& next_of(void* block) {
  return *static_cast<void**>(block);
}

constexpr size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Calls fn(first, bytes) for the whole pages inside [begin, begin + size), if any.
template <typename Fn>
void with_inner_pages(void* begin, size_t size, Fn&& fn) {
  const uintptr_t first = round_up(reinterpret_cast<uintptr_t>(begin), kPage);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(begin) + size) & ~(kPage - 1);
  if (first < last) fn(reinterpret_cast<std::byte*>(first), last - first);
}

std::atomic<unsigned> g_threads{0};
// The variable is initial-exec: the general model may allocate the thread's copy on first use, with malloc.
[[gnu::tls_model("initial-exec")]] thread_local unsigned t_shard_plus_one = 0;

}  // namespace

unsigned HeapEngine::shard_of_this_thread() {
  if (t_shard_plus_one == 0) [[unlikely]]
    t_shard_plus_one = g_threads.fetch_add(1, std::memory_order_relaxed) % kShards + 1;
  return t_shard_plus_one - 1;
}

void HeapEngine::reserve() {
  if (reserved_) return;
  // The range has no access until the heap grows, so that the reservation counts as no memory whatever the
  // overcommit policy.
  void* mapped = ::mmap(reinterpret_cast<void*>(base_), capacity_, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != reinterpret_cast<void*>(base_))
    die(1,
        {"cannot reserve address space for malloc: ",
         errno == ENOMEM ? "the limit (ulimit -v) is too low; a node reserves about 40 TiB, and uses what the program "
                           "needs: remove the limit (ulimit -v unlimited)"
                         : "something else is where it belongs (a library that is loaded early?)"});
  reserved_ = true;
}

void HeapEngine::make_ready() {
  const LockGuard guard(tree_lock_.lock);
  if (ready_.load(std::memory_order_relaxed)) return;
  reserve();
  const size_t image = std::min(capacity_, kRootBytes + kMinGrowth);
  if (::mprotect(reinterpret_cast<void*>(base_), image, PROT_READ | PROT_WRITE) != 0)
    die(1, "no memory for the private heap; errno:", static_cast<uint64_t>(errno));
  // The pages are zero, which is what an empty Root is, but for these members.
  root().magic = kMagic;
  root().image_bytes = image;
  new (&tree_at(base_, kRootBytes)) Tree(image - kRootBytes, 0);
  ready_.store(true, std::memory_order_release);
}

// Lets the tree manage at least `at_least` bytes more.
bool HeapEngine::grow(size_t at_least) {
  const size_t old_size = root().image_bytes;
  const size_t room = capacity_ - old_size;
  const size_t needed = round_up(at_least, kPage);
  if (needed > room) return false;
  const size_t wanted = std::min(room, std::max({needed, kMinGrowth, round_up(old_size / 8, kPage)}));
  if (::mprotect(reinterpret_cast<void*>(base_ + old_size), wanted, PROT_READ | PROT_WRITE) != 0) return false;
  root().image_bytes = old_size + wanted;
  tree_at(base_, kRootBytes).grow(wanted);
  return true;
}

void* HeapEngine::tree_allocate(size_t size, size_t alignment) {
  if (size > capacity_ || alignment > capacity_) return nullptr;
  Tree& tree = tree_at(base_, kRootBytes);
  for (int attempt = 0; attempt < 2; ++attempt) {
    void* block = alignment <= kAlignment ? tree.allocate(size) : tree.allocate_aligned(size, alignment);
    if (block != nullptr) return block;
    // Alignment needs room before the block, and a piece too small to be a block cannot stay there.
    if (attempt != 0 || !grow(size + alignment + kPage)) return nullptr;
  }
  return nullptr;
}

// Takes a batch from the tree for a list that is empty, and returns one block of it.
void* HeapEngine::refill(unsigned shard, unsigned size_class) {
  constexpr size_t kMaxBatch = 16;
  const size_t batch = class_bytes(size_class) <= 256 ? kMaxBatch : 4;
  void* blocks[kMaxBatch];
  size_t count = 0;
  {
    const LockGuard guard(tree_lock_.lock);
    while (count < batch) {
      blocks[count] = tree_allocate(class_bytes(size_class), kAlignment);
      if (blocks[count] == nullptr) break;
      ++count;
    }
  }
  if (count == 0) return nullptr;
  FreeList& list = root().lists[shard][size_class];
  // The list is filled backwards, so that blocks leave it in the order of their addresses.
  while (count > 1) {
    next_of(blocks[--count]) = list.first;
    list.first = blocks[count];
    ++list.length;
  }
  return blocks[0];
}

// Gives the older half of a list back to the tree. The caller holds the shard's lock.
void HeapEngine::trim(FreeList& list) {
  const uint64_t keep = list.length / 2;
  void* last_kept = list.first;
  for (uint64_t i = 1; i < keep; ++i) last_kept = next_of(last_kept);
  void* block = next_of(last_kept);
  next_of(last_kept) = nullptr;
  list.length = keep;
  const LockGuard guard(tree_lock_.lock);
  while (block != nullptr) {
    void* next = next_of(block);
    tree_at(base_, kRootBytes).deallocate(block);
    block = next;
  }
}

void* HeapEngine::allocate(size_t size) {
  if (!ready_.load(std::memory_order_acquire)) [[unlikely]]
    make_ready();
  if (size <= kMaxCached) [[likely]] {
    const unsigned shard = shard_of_this_thread();
    const unsigned size_class = class_for(size);
    const LockGuard guard(shard_locks_[shard].lock);
    FreeList& list = root().lists[shard][size_class];
    void* block = list.first;
    if (block == nullptr) [[unlikely]]
      return refill(shard, size_class);
    list.first = next_of(block);
    --list.length;
    return block;
  }
  const LockGuard guard(tree_lock_.lock);
  return tree_allocate(size, kAlignment);
}

void* HeapEngine::allocate_zeroed(size_t size) {
  void* block = allocate(size);
  if (block == nullptr) return nullptr;
  if (size < kZeroByMapping) {
    std::memset(block, 0, size);
    return block;
  }
  auto* const begin = static_cast<std::byte*>(block);
  with_inner_pages(block, size, [&](std::byte* first, size_t bytes) {
    if (::madvise(first, bytes, MADV_DONTNEED) != 0) std::memset(first, 0, bytes);  // fails for locked pages (mlockall)
    std::memset(begin, 0, static_cast<size_t>(first - begin));
    std::memset(first + bytes, 0, static_cast<size_t>(begin + size - (first + bytes)));
  });
  return block;
}

void* HeapEngine::allocate_aligned(size_t alignment, size_t size) {
  if (alignment <= kAlignment) return allocate(size);
  if (!ready_.load(std::memory_order_acquire)) [[unlikely]]
    make_ready();
  const LockGuard guard(tree_lock_.lock);
  return tree_allocate(std::max<size_t>(size, 1), alignment);
}

size_t HeapEngine::usable_size(const void* block) const {
  // The size in the block's own header does not change while the block is allocated. A flag in the same word may
  // change, under the tree's lock, and only TSan minds that.
#if defined(__SANITIZE_THREAD__)
  const LockGuard guard(tree_lock_.lock);
#endif
  return tree_at(base_, kRootBytes).size(block);
}

void HeapEngine::release(void* block) {
  const size_t usable = usable_size(block);
  if (usable <= kMaxCached) [[likely]] {
    const unsigned shard = shard_of_this_thread();
    const auto size_class = static_cast<unsigned>((usable - 8) / 16);
    const LockGuard guard(shard_locks_[shard].lock);
    FreeList& list = root().lists[shard][size_class];
    next_of(block) = list.first;
    list.first = block;
    if (++list.length > max_length(size_class)) [[unlikely]]
      trim(list);
    return;
  }
  if (usable >= kGiveBack)
    with_inner_pages(block, usable, [](std::byte* first, size_t bytes) { ::madvise(first, bytes, MADV_DONTNEED); });
  const LockGuard guard(tree_lock_.lock);
  tree_at(base_, kRootBytes).deallocate(block);
}

void* HeapEngine::reallocate(void* block, size_t size) {
  const size_t usable = usable_size(block);
  if (size <= usable && (usable <= kMaxCached ? size >= usable / 4 : size >= usable / 2)) return block;
  if (size > capacity_) return nullptr;
  if (usable > kMaxCached && size > kMaxCached) {
    const LockGuard guard(tree_lock_.lock);
    Tree& tree = tree_at(base_, kRootBytes);
    void* reuse = block;
    size_t received = size;
    // The limit of an expansion is the least size to reach; that of a shrinkage is the most that may be left.
    if (size > usable) {
      if (tree.raw_allocation_command(bi::expand_fwd | bi::nothrow_allocation, size, received, reuse) != nullptr)
        return block;
    } else {
      tree.raw_allocation_command(bi::shrink_in_place | bi::nothrow_allocation, usable, received, reuse);
      return block;  // shrunk, or too little to cut off
    }
  }
  void* moved = allocate(size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(size, usable));
  release(block);
  return moved;
}

// Clang's analysis knows no array of locks, so it is off here.
void HeapEngine::lock_all() MG_NO_THREAD_SAFETY_ANALYSIS {
  for (PaddedLock& shard : shard_locks_) shard.lock.lock();
  tree_lock_.lock.lock();
}

void HeapEngine::unlock_all() MG_NO_THREAD_SAFETY_ANALYSIS {
  tree_lock_.lock.unlock();
  for (PaddedLock& shard : shard_locks_) shard.lock.unlock();
}

std::span<const std::byte> HeapEngine::image() const {
  if (!ready_.load(std::memory_order_acquire)) return {};
  return {reinterpret_cast<const std::byte*>(base_), root().image_bytes};
}

bool HeapEngine::begin_adoption(size_t size) {
  if (size > capacity_ || size % kPage != 0 || (size != 0 && size <= kRootBytes)) return false;
  const LockGuard guard(tree_lock_.lock);
  reserve();
  ready_.store(false, std::memory_order_relaxed);
  auto* const base = reinterpret_cast<void*>(base_);
  // A fresh mapping, unlike MADV_DONTNEED, also takes away the access beyond the new image.
  if (::mmap(base, capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != base)
    return false;
  adopted_bytes_ = size;
  return size == 0 || ::mprotect(base, size, PROT_READ | PROT_WRITE) == 0;
}

bool HeapEngine::finish_adoption() {
  const LockGuard guard(tree_lock_.lock);
  if (adopted_bytes_ == 0) return true;  // the first allocation starts a new heap
  if (root().magic != kMagic || root().image_bytes != adopted_bytes_) return false;
  ready_.store(true, std::memory_order_release);
  return true;
}

bool HeapEngine::check() {
  lock_all();
  const bool sane = !ready_.load(std::memory_order_acquire) || tree_at(base_, kRootBytes).check_sanity();
  unlock_all();
  return sane;
}

}  // namespace multigrain
