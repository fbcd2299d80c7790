#include "guest/mappings.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace multigrain::guest {
namespace {

long status_of(long result) {
  return result == -1 ? -errno : 0;
}

}  // namespace

long PrivateMappings::map(Area& area, int flags, int fd, uint64_t offset, const std::vector<Area>&) {
  const Range range = area.range;
  return status_of(
      syscall(SYS_mmap, range.begin, range.end - range.begin, area.rights, flags, fd, static_cast<off_t>(offset)));
}

long PrivateMappings::unmap(Range range, uint64_t length, const std::vector<Area>&) {
  return status_of(munmap(reinterpret_cast<void*>(range.begin), length));
}

long PrivateMappings::protect(Range range, uint64_t length, int rights, int key, std::vector<Area>&) {
  return key == -1 ? status_of(mprotect(reinterpret_cast<void*>(range.begin), length, rights))
                   : status_of(syscall(SYS_pkey_mprotect, range.begin, length, rights, key));
}

long PrivateMappings::remap(Range old, uint64_t old_length, uint64_t new_length, int flags, uint64_t to,
                            const std::vector<Area>&, const std::vector<Area>&) {
  return status_of(syscall(SYS_mremap, old.begin, old_length, new_length, flags, to));
}

long PrivateMappings::discard(Range range, const std::vector<Area>&) {
  return status_of(madvise(reinterpret_cast<void*>(range.begin), range.end - range.begin, MADV_DONTNEED));
}

long PrivateMappings::attach(Area& area, int segment, int flags, const std::vector<Area>&) {
  return status_of(reinterpret_cast<long>(shmat(segment, reinterpret_cast<void*>(area.range.begin), flags)));
}

long PrivateMappings::map_for_host(Range range) {
  void* const wanted = reinterpret_cast<void*>(range.begin);
  void* const mapped = mmap(wanted, range.end - range.begin, PROT_READ | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  return mapped == MAP_FAILED ? -errno : 0;
}

long PrivateMappings::detach(uint64_t address, const std::vector<Area>&) {
  return status_of(shmdt(reinterpret_cast<void*>(address)));
}

}  // namespace multigrain::guest
