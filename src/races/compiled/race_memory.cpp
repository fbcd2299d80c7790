#include "races/compiled/race_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/lock_guard.h"
#include "races/module.h"

namespace multigrain::races {
namespace {

constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

constexpr uint64_t kBlocksAt = aligned(sizeof(RaceMemory::Head));
constexpr uint64_t kContextsAt = kBlocksAt + aligned(RaceMemory::kBlocks * 4 * sizeof(uint64_t));
constexpr uint64_t kObjectsAt = kContextsAt + aligned(RaceMemory::kContexts * sizeof(uint64_t));
constexpr uint64_t kDirectoryAt = kObjectsAt + aligned(RaceMemory::kObjects * sizeof(SyncObject));
constexpr uint64_t kUnitsAt =
    kDirectoryAt + (uint64_t{1} << (RaceMemory::kAddressBits - RaceMemory::kPageShift)) * sizeof(uint32_t);
// Numbers of units have 32 bits, and 0 is none.
constexpr uint64_t kMostUnits = (uint64_t{1} << 32) - (1u << RaceMemory::kClasses);

}  // namespace

Result<RaceMemory> RaceMemory::create(int fd, uint64_t limit) {
  const uint64_t units = std::min(limit / kUnit, kMostUnits);
  // One block more, which a thread may ask for when there is no more.
  const uint64_t bytes = kUnitsAt + aligned((units + (1u << kClasses)) * kUnit);
  rlimit most{};
  if (fd >= 0 && getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes)
    return fail("--check-races: the file size limit of {} bytes is below the {} that it maps: raise 'ulimit -f'",
                static_cast<uint64_t>(most.rlim_cur), bytes);
  // Each node does this, and all to the same size.
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    return fail_errno(errno, fmt::format("--check-races: cannot give its memory {} bytes of address space", bytes));
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_NORESERVE | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), fd, 0);
  if (mapped == MAP_FAILED)
    return fail_errno(errno, fmt::format("--check-races: cannot map {} bytes of address space", bytes));
  // Units are given out one behind the other.
  madvise(static_cast<std::byte*>(mapped) + kUnitsAt, bytes - kUnitsAt, MADV_HUGEPAGE);
  madvise(mapped, bytes, MADV_DONTFORK);
  madvise(mapped, bytes, MADV_DONTDUMP);
  auto* const base = static_cast<std::byte*>(mapped);
  RaceMemory memory;
  memory.head_ = reinterpret_cast<Head*>(base);
  memory.blocks_ = reinterpret_cast<NotedBlock*>(base + kBlocksAt);
  memory.contexts_ = reinterpret_cast<std::atomic<uint64_t>*>(base + kContextsAt);
  memory.objects_ = reinterpret_cast<SyncObject*>(base + kObjectsAt);
  memory.directory_ = reinterpret_cast<std::atomic<uint32_t>*>(base + kDirectoryAt);
  memory.units_ = base + kUnitsAt;
  memory.limit_ = units;
  return memory;
}

// Calls visit(entry) for those that may be the code's, until that returns true.
template <typename Visit>
void RaceMemory::visit_lines(uint64_t code, Visit&& visit) const {
  auto& entries = head_->other_lines;
  const uint64_t first = (code * 0x9e3779b97f4a7c15u) >> 50;
  for (uint64_t i = 0; i < 64; ++i)
    if (visit(entries[(first + i) % entries.size()])) return;
}

void RaceMemory::note_lines(uint64_t code, uint64_t lines) const {
  visit_lines(code, [&](Head::OtherLines& entry) {
    uint64_t found = entry.code.load(std::memory_order_relaxed);
    if (found == 0 && entry.code.compare_exchange_strong(found, code, std::memory_order_relaxed)) found = code;
    if (found != code) return false;
    if (entry.lines.load(std::memory_order_relaxed) != lines) entry.lines.store(lines, std::memory_order_release);
    return true;
  });
}

uint64_t RaceMemory::other_lines(uint64_t code) const {
  uint64_t lines = 0;
  visit_lines(code, [&](const Head::OtherLines& entry) {
    const uint64_t found = entry.code.load(std::memory_order_relaxed);
    if (found == code) lines = entry.lines.load(std::memory_order_acquire);
    return found == code || found == 0;
  });
  return lines;
}

void RaceMemory::note_block(const Block& block) {
  NotedBlock& entry = blocks_[((block.begin * 0x9e3779b97f4a7c15u) >> 40) & (kBlocks - 1)];
  entry.begin.store(0);
  entry.bytes.store(block.bytes);
  entry.made.store(block.made);
  entry.made_by.store(block.made_by);
  entry.begin.store(block.begin);
}

std::optional<RaceMemory::Block> RaceMemory::block_at(uint64_t address) const {
  for (size_t i = 0; i < kBlocks; ++i) {
    const NotedBlock& entry = blocks_[i];
    const Block block{entry.begin.load(), entry.bytes.load(), entry.made.load(),
                      static_cast<uint32_t>(entry.made_by.load())};
    if (block.begin != 0 && address - block.begin < block.bytes && entry.begin.load() == block.begin) return block;
  }
  return std::nullopt;
}

uint32_t RaceMemory::take_new(uint64_t units) {
  // Unit 0 is not used: 0 is no block.
  const uint64_t first = 1 + head_->next_unit.fetch_add(units, std::memory_order_relaxed);
  if (first + units > limit_) [[unlikely]]
    die(1,
        "--check-races has used up the memory that it may take for what it knows of accesses: give it more with "
        "--races-memory, or the program a smaller input; the limit in MiB:",
        limit_ * kUnit >> 20);
  return static_cast<uint32_t>(first);
}

uint32_t RaceMemory::make(unsigned size_class) {
  Head::Free& free = head_->free[size_class];
  if (free.first.load(std::memory_order_relaxed) != 0) {
    uint32_t block = 0;
    {
      const LockGuard hold(free.lock);
      block = free.first.load(std::memory_order_relaxed);
      if (block != 0) free.first.store(*at<uint32_t>(block), std::memory_order_relaxed);
    }
    if (block != 0) {
      std::memset(at<std::byte>(block), 0, kUnit << size_class);
      return block;
    }
  }
  return take_new(uint64_t{1} << size_class);
}

void RaceMemory::drop(uint32_t block, unsigned size_class) {
  Head::Free& free = head_->free[size_class];
  const LockGuard hold(free.lock);
  *at<uint32_t>(block) = free.first.load(std::memory_order_relaxed);
  free.first.store(block, std::memory_order_relaxed);
}

uint32_t RaceMemory::make_cells(uint64_t page) {
  const uint32_t made = make(kClasses - 1);
  uint32_t found = 0;
  if (directory_[page].compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
  drop(made, kClasses - 1);
  return found;
}

uint64_t RaceMemory::grow(uint64_t list) {
  const std::span<AccessRecord> old = entries(list);
  const uint64_t size_class = (list >> 32) + 1;
  const uint64_t larger = size_class << 32 | make(static_cast<unsigned>(size_class));
  std::ranges::copy(old, entries(larger).begin());
  drop(list);
  return larger;
}

}  // namespace multigrain::races
