#include "memory/sparse_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "memory/hardware_page.h"
#include "memory/layout.h"

namespace multigrain {
namespace {

// Rounds up to whole hardware pages; `bytes` is at most layout::kTablesSize. An empty table still gets an address.
uint64_t mapped_size(uint64_t bytes) {
  return bytes == 0 ? kHardwarePage : (bytes + kHardwarePage - 1) / kHardwarePage * kHardwarePage;
}

constexpr uint64_t kSmallestStep = uint64_t{64} << 20;
constexpr uint64_t kLargestStep = layout::kTablesSize / 64;

// Where the space for tables is free behind the table that was made last.
constinit std::atomic<uint64_t> g_behind_last{0};

// Maps a table so far into the space for tables. Returns nullptr if something is there, or the space ends before.
Result<std::byte*> map_at(uint64_t offset, uint64_t size, std::string_view what) {
  if (offset + size > layout::kTablesSize) return nullptr;
  void* const wanted = reinterpret_cast<void*>(layout::kTablesBase + offset);
  void* const got = mmap(wanted, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) {
    if (errno == EEXIST) return nullptr;
    return fail_errno(errno, fmt::format("cannot map {} bytes for {} (see 'ulimit -v' and the sysctl "
                                         "vm.overcommit_memory, which must not be 2)",
                                         size, what));
  }
  if (got != wanted) {
    munmap(got, size);
    return fail("cannot map {}: the kernel is older than 4.17", what);
  }
  // A kernel without huge pages answers EINVAL.
  static_cast<void>(madvise(got, size, MADV_NOHUGEPAGE));
  static_cast<void>(madvise(got, size, MADV_DONTDUMP));
  g_behind_last.store((offset + size + kSmallestStep - 1) / kSmallestStep * kSmallestStep, std::memory_order_relaxed);
  return static_cast<std::byte*>(got);
}

}  // namespace

Result<std::byte*> mmap_sparse(uint64_t bytes, std::string_view what) {
  if (bytes > layout::kTablesSize)
    return fail("{} would take {} bytes of address space, and {} are set aside for tables", what, bytes,
                layout::kTablesSize);
  const uint64_t size = mapped_size(bytes);
  Result<std::byte*> made = map_at(g_behind_last.load(std::memory_order_relaxed), size, what);
  // From the beginning this is first fit, in steps that grow: a small table behind a large one must not try each megabyte
  // of the large one.
  uint64_t step = kSmallestStep;
  for (uint64_t offset = 0; made && *made == nullptr && offset + size <= layout::kTablesSize;
       offset += step, step = std::min(2 * step, kLargestStep))
    made = map_at(offset, size, what);
  if (!made || *made != nullptr) return made;
  return fail("cannot map {}: the address space set aside for tables is used up", what);
}

void munmap_sparse(std::byte* address, uint64_t bytes) {
  MG_CHECK(munmap(address, mapped_size(bytes)) == 0, reinterpret_cast<uint64_t>(address), bytes);
}

}  // namespace multigrain
