#include "memory/line_table.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fabric/words.h"
#include "memory/checked_memory.h"

namespace multigrain {
namespace {

constexpr size_t kHardwarePage = 4096;

Status map_at(uintptr_t at, uint64_t bytes, int flags, int fd, uint64_t offset) {
  void* const wanted = reinterpret_cast<void*>(at);
  void* const got = mmap(wanted, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  if (got == MAP_FAILED)
    return fail_errno(errno, fmt::format("cannot map the line table at {:#x}-{:#x} (see 'ulimit -v'; a smaller region, "
                                         "MULTIGRAIN_REGION_SIZE, has a smaller table)",
                                         at, at + bytes));
  if (got != wanted) {
    munmap(got, bytes);
    return fail("cannot map the line table at {:#x}: the kernel is older than 4.17", at);
  }
  // If a child inherited the table, other nodes would see its stores; and a core dump would allocate every page.
  madvise(got, bytes, MADV_DONTFORK);
  madvise(got, bytes, MADV_DONTDUMP);
  // A kernel without huge pages answers EINVAL.
  static_cast<void>(madvise(got, bytes, MADV_NOHUGEPAGE));
  return {};
}

}  // namespace

Result<LineTable> LineTable::map(uint64_t region_size, unsigned line_shift, int fd, uint64_t offset, uintptr_t at) {
  MG_CHECK(line_shift >= MG_FINE_MIN_LINE_SHIFT && line_shift <= MG_FINE_MAX_LINE_SHIFT, line_shift);
  const uint64_t bytes = (words::line_table_bytes(region_size) + kHardwarePage - 1) / kHardwarePage * kHardwarePage;
  const uintptr_t front = at - kHardwarePage;
  // The table replaces what was reserved there when the library was loaded (instrument/runtime/reserved_table.cpp).
  const int fixed = at == layout::kLineTableBase ? MAP_FIXED : MAP_FIXED_NOREPLACE;
  if (Status mapped = map_at(front, kHardwarePage, fixed | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); !mapped)
    return tl::unexpected(mapped.error());
  const int flags = fixed | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (Status mapped = map_at(at, bytes, flags, fd, offset); !mapped) {
    munmap(reinterpret_cast<void*>(front), kHardwarePage);
    return tl::unexpected(mapped.error());
  }
  const uint64_t shift = line_shift;
  std::memcpy(reinterpret_cast<void*>(at - sizeof shift), &shift, sizeof shift);
  return LineTable(reinterpret_cast<std::byte*>(at), bytes, line_shift);
}

LineTable::LineTable(LineTable&& other) noexcept
    : words_(std::exchange(other.words_, nullptr)), bytes_(other.bytes_), shift_(other.shift_) {}

LineTable::~LineTable() {
  if (words_ != nullptr) munmap(words_ - kHardwarePage, kHardwarePage + bytes_);
}

}  // namespace multigrain
