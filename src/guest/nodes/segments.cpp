#include "guest/nodes/segments.h"

#include <sys/mman.h>
#include <sys/shm.h>

#include <cerrno>

namespace multigrain::guest::segments {

long map(const Area& area) {
  const auto segment = static_cast<int>(area.file & ~kMark);
  const int how = ((area.rights & PROT_WRITE) != 0 ? 0 : SHM_RDONLY) | ((area.rights & PROT_EXEC) != 0 ? SHM_EXEC : 0);
  shmid_ds about{};
  if (shmctl(segment, IPC_STAT, &about) != 0) return -errno;
  void* const whole = shmat(segment, nullptr, how);
  if (whole == reinterpret_cast<void*>(-1)) return -errno;
  const uint64_t begin = reinterpret_cast<uint64_t>(whole);
  const uint64_t end = begin + page_up(about.shm_segsz);
  const uint64_t bytes = area.range.end - area.range.begin;
  const uint64_t part = begin + area.offset;
  long result = 0;
  if (part + bytes > end || part + bytes < part)
    result = -EINVAL;
  else if (mremap(reinterpret_cast<void*>(part), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                  reinterpret_cast<void*>(area.range.begin)) == MAP_FAILED)
    result = -errno;
  // This unmaps what is before and behind the part. The hole that the part has left is free now.
  const uint64_t behind = result == 0 ? part + bytes : begin;
  if (result == 0 && part > begin) munmap(whole, part - begin);
  if (behind < end) munmap(reinterpret_cast<void*>(behind), end - behind);
  if (result != 0) return result;
  return mprotect(reinterpret_cast<void*>(area.range.begin), bytes, area.rights) == 0 ? 0 : -errno;
}

}  // namespace multigrain::guest::segments
