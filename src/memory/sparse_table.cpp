#include "memory/sparse_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "memory/layout.h"

namespace multigrain {
namespace {

constexpr uint64_t kHardwarePage = 4096;

// Rounds up to whole hardware pages; `bytes` is at most layout::kTablesSize. An empty table still gets an address.
uint64_t mapped_size(uint64_t bytes) {
  return bytes == 0 ? kHardwarePage : (bytes + kHardwarePage - 1) / kHardwarePage * kHardwarePage;
}

}  // namespace

Result<std::byte*> mmap_sparse(uint64_t bytes, std::string_view what) {
  if (bytes > layout::kTablesSize)
    return fail("{} would take {} bytes of address space, and {} are set aside for tables", what, bytes,
                layout::kTablesSize);
  const uint64_t size = mapped_size(bytes);
  // This is first fit, in steps that grow: a small table behind a large one must not try each megabyte of the large
  // one.
  constexpr uint64_t kLargestStep = layout::kTablesSize / 64;
  uint64_t step = uint64_t{64} << 20;
  for (uint64_t offset = 0; offset + size <= layout::kTablesSize;
       offset += step, step = std::min(2 * step, kLargestStep)) {
    void* const wanted = reinterpret_cast<void*>(layout::kTablesBase + offset);
    void* const got = mmap(wanted, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) {
      if (errno == EEXIST) continue;
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
    return static_cast<std::byte*>(got);
  }
  return fail("cannot map {}: the address space set aside for tables is used up", what);
}

void munmap_sparse(std::byte* address, uint64_t bytes) {
  MG_CHECK(munmap(address, mapped_size(bytes)) == 0, reinterpret_cast<uint64_t>(address), bytes);
}

}  // namespace multigrain
