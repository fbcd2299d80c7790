#include "guest/nodes/shared_mappings.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/own_descriptors.h"
#include "guest/entry.h"
#include "guest/nodes/segments.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace multigrain::guest {
namespace {

constexpr int kAll = PROT_READ | PROT_WRITE;

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);
}
uint64_t bytes_of(Range range) {
  return range.end - range.begin;
}

// Returns whether processes may talk to each other by a shared mapping of the file: by stores through this descriptor,
// now or after mprotect(), or by another one's, since the file is memory.
bool is_for_others(int fd) {
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR) return true;
  struct statfs system{};
  return fstatfs(fd, &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == HUGETLBFS_MAGIC;
}

// Returns whether the file is /dev/zero. Each mapping of it is memory without a name.
bool is_zero_device(int fd) {
  struct stat file{};
  constexpr unsigned kMemoryDevices = 1, kZero = 5;
  return fstat(fd, &file) == 0 && S_ISCHR(file.st_mode) && file.st_rdev == makedev(kMemoryDevices, kZero);
}

}  // namespace

SharedMappings::~SharedMappings() = default;

long map_over_view(Range range, int rights, bool is_shared, int fd, uint64_t offset) {
  void* const mapped = mmap(pointer(range.begin), bytes_of(range), rights,
                            (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED, fd, static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? -errno : 0;
}

void SharedMappings::view_again(Range range) {
  const PageId first = region_.page_of(pointer(range.begin));
  region_.view_again(first, bytes_of(range) / kPageSize);
  of_files_.remove(range);
  rights_.watch_again(first, bytes_of(range) / kPageSize);
}

void SharedMappings::clear(Range range) {
  if (!protocol_.discard(region_.page_of(pointer(range.begin)), bytes_of(range) / kPageSize))
    panic("the protocol of a guest on several nodes cannot discard pages");
}

void SharedMappings::vacate(const std::vector<Area>& before) {
  if (before.empty()) return;
  others_.invalidate({before.front().range.begin, before.back().range.end});
  for (const Area& area : before) {
    if (area.file != 0) {
      view_again(area.range);
      if (!segments::is_segment(area.file)) kept_.unuse(descriptor_of(area.file), bytes_of(area.range));
      continue;
    }
    // The rights are taken first, so that reading ahead does not bring back what is given up.
    mprotect(pointer(area.range.begin), bytes_of(area.range), PROT_NONE);
    clear(area.range);
  }
}

long SharedMappings::map_file(Area& area, int flags, int fd, uint64_t offset) {
  int kept = -1;
  if ((flags & MAP_ANONYMOUS) != 0) {
    const int memory = own_descriptors::keep(memfd_create("shared", MFD_CLOEXEC));
    if (memory < 0) return -errno;
    if (ftruncate(memory, static_cast<off_t>(bytes_of(area.range))) != 0) {
      const int code = errno;
      close(memory);
      return -code;
    }
    kept = kept_.use(memory, bytes_of(area.range));
    close(memory);
    offset = 0;
  } else {
    kept = kept_.use(fd, bytes_of(area.range));
  }
  if (kept < 0) return kept;
  if (const long result = map_over_view(area.range, area.rights, area.is_shared, kept, offset); result != 0) {
    kept_.unuse(kept, bytes_of(area.range));
    return result;
  }
  area.file = static_cast<uint32_t>(kept) + 1;
  area.offset = offset;
  of_files_.add(area);
  return 0;
}

long SharedMappings::fill(Range range, int fd, uint64_t offset) {
  std::array<std::byte, 16 * kPageSize> buffer;
  for (uint64_t at = range.begin; at < range.end;) {
    const ssize_t count =
        pread(fd, buffer.data(), std::min<uint64_t>(buffer.size(), range.end - at), static_cast<off_t>(offset));
    if (count < 0) return -errno;
    if (count == 0) return 0;
    if (!copy_guarded(pointer(at), buffer.data(), static_cast<size_t>(count))) return -EFAULT;
    at += static_cast<uint64_t>(count);
    offset += static_cast<uint64_t>(count);
  }
  return 0;
}

long SharedMappings::map(Area& area, int flags, int fd, uint64_t offset, const std::vector<Area>& before) {
  bool is_anonymous = (flags & MAP_ANONYMOUS) != 0;
  if (!is_anonymous) {
    // A mapping that the kernel would refuse is refused before anything is taken away.
    void* const trial = mmap(nullptr, bytes_of(area.range), area.rights, flags & ~(MAP_FIXED | MAP_POPULATE), fd,
                             static_cast<off_t>(offset));
    if (trial == MAP_FAILED) return -errno;
    munmap(trial, bytes_of(area.range));
    // Each node would have a memory of its own.
    is_anonymous = is_zero_device(fd);
    if (is_anonymous) flags |= MAP_ANONYMOUS;
  } else if ((flags & MAP_HUGETLB) != 0) {
    return -ENOMEM;
  }
  vacate(before);
  const bool is_of_file = files_ == Files::kOfEveryNode
                              ? area.is_shared || (!is_anonymous && (area.rights & PROT_WRITE) == 0)
                              : area.is_shared && (is_anonymous || is_for_others(fd));
  if (is_of_file) return map_file(area, flags, fd, offset);
  if (!is_anonymous) {
    mprotect(pointer(area.range.begin), bytes_of(area.range), kAll);
    if (const long result = fill(area.range, fd, offset); result != 0) return result;
  }
  return mprotect(pointer(area.range.begin), bytes_of(area.range), area.rights) == 0 ? 0 : -errno;
}

long SharedMappings::unmap(Range, uint64_t, const std::vector<Area>& before) {
  vacate(before);
  return 0;
}

long SharedMappings::protect(Range range, uint64_t, int rights, int key, std::vector<Area>& before) {
  if (key != -1) return -ENOSYS;
  uint64_t mapped_to = range.begin;
  bool takes = false;
  for (const Area& area : before) {
    if (area.range.begin > mapped_to) return -ENOMEM;
    mapped_to = area.range.end;
    takes = takes || (area.rights & ~rights) != 0;
  }
  if (mapped_to < range.end) return -ENOMEM;
  const auto becomes_pages = [rights](const Area& area) {
    return area.file != 0 && !area.is_shared && (rights & PROT_WRITE) != 0;
  };
  if (takes || std::ranges::any_of(before, becomes_pages)) others_.invalidate(range);
  for (Area& area : before) {
    if (becomes_pages(area)) {
      view_again(area.range);
      mprotect(pointer(area.range.begin), bytes_of(area.range), kAll);
      if (const long result = fill(area.range, descriptor_of(area.file), area.offset); result != 0) return result;
      kept_.unuse(descriptor_of(area.file), bytes_of(area.range));
      area.file = 0;
      area.offset = 0;
    }
    if (mprotect(pointer(area.range.begin), bytes_of(area.range), rights) != 0) return -errno;
  }
  return 0;
}

// The mapping stays where it is and grows, or it moves.
long SharedMappings::remap_file(const Area& area, uint64_t bytes, uint64_t to, const std::vector<Area>& before,
                                const std::vector<Area>& replaced) {
  if (segments::is_segment(area.file)) return -EINVAL;
  Area more = area;
  if (to == area.range.begin) {
    more.range = {area.range.end, to + bytes};
    return map_file(more, 0, descriptor_of(area.file), area.offset + bytes_of(area.range));
  }
  if (to < area.range.end && area.range.begin < to + bytes) return -EINVAL;
  vacate(replaced);
  more.range = {to, to + bytes};
  if (const long result = map_file(more, 0, descriptor_of(area.file), area.offset); result != 0) return result;
  vacate(before);
  return 0;
}

// Memory that moves is copied, and files are mapped again. The rest of what mremap() can do is refused: no program
// needs it on several nodes.
long SharedMappings::remap(Range old, uint64_t, uint64_t new_length, int flags, uint64_t to,
                           const std::vector<Area>& before, const std::vector<Area>& replaced) {
  const uint64_t bytes = page_up(new_length);
  if ((flags & MREMAP_DONTUNMAP) != 0 || before.empty() || old.begin == old.end) return -EINVAL;
  const Area& area = before.front();
  const bool is_one = before.size() == 1 && area.range == old;
  if ((flags & MREMAP_FIXED) == 0 && bytes <= bytes_of(old)) {
    std::vector<Area> tail;
    for (Area part : before) {
      if (part.range.end <= old.begin + bytes) continue;
      part.range.begin = std::max(part.range.begin, old.begin + bytes);
      tail.push_back(part);
    }
    vacate(tail);
    return 0;
  }
  if (!is_one) return -EFAULT;
  if (area.file != 0)
    return remap_file(area, bytes, (flags & MREMAP_FIXED) != 0 ? to : area.range.begin, before, replaced);
  if ((flags & MREMAP_FIXED) == 0)
    return mprotect(pointer(old.end), bytes - bytes_of(old), area.rights) == 0 ? 0 : -errno;
  if (to < old.end && old.begin < to + bytes) return -EINVAL;
  vacate(replaced);
  mprotect(pointer(to), bytes, kAll);
  if ((area.rights & PROT_READ) == 0) mprotect(pointer(old.begin), bytes_of(old), kAll);
  for (uint64_t at = 0; at < std::min(bytes, bytes_of(old)); at += kPageSize) {
    const PageId page = region_.page_of(pointer(old.begin + at));
    if (!heap_.home_of(page) && !heap_.ask_home(page)) continue;
    if (!copy_guarded(pointer(to + at), pointer(old.begin + at), kPageSize)) return -EFAULT;
  }
  vacate(before);
  return mprotect(pointer(to), bytes, area.rights) == 0 ? 0 : -errno;
}

long SharedMappings::discard(Range range, const std::vector<Area>& before) {
  uint64_t mapped_to = range.begin;
  for (const Area& area : before) {
    if (area.range.begin > mapped_to) return -ENOMEM;
    mapped_to = area.range.end;
    if (area.file != 0) continue;
    clear(area.range);
  }
  return mapped_to < range.end ? -ENOMEM : 0;
}

namespace {

// While an object exists, no thread of this node can write to the guest's pages: it faults, and waits for the address
// space (Nodes::on_fault). A write that was made before its page was protected follows only writes that were, too, so
// what is read is a state that there was.
class Unchanging {
 public:
  explicit Unchanging(const std::vector<Area>& areas) : areas_(areas) { protect(~PROT_WRITE); }
  ~Unchanging() { protect(~0); }
  Unchanging(const Unchanging&) = delete;
  Unchanging& operator=(const Unchanging&) = delete;

 private:
  void protect(int kept) {
    for (const Area& area : areas_)
      if (area.file == 0 && (area.rights & PROT_WRITE) != 0)
        mprotect(pointer(area.range.begin), bytes_of(area.range), area.rights & kept);
  }

  const std::vector<Area>& areas_;
};

// Huge pages would take memory that the guest does not use, since its pages may be far from each other: while an object
// exists, this process gets none that it does not have.
class NoHugePages {
 public:
  NoHugePages() : before_(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0)) { set(1); }
  ~NoHugePages() { set(before_); }
  NoHugePages(const NoHugePages&) = delete;
  NoHugePages& operator=(const NoHugePages&) = delete;

 private:
  void set(int disabled) const {
    if (before_ == 0) prctl(PR_SET_THP_DISABLE, static_cast<unsigned long>(disabled), 0, 0, 0);
  }

  const int before_;
};

uint64_t bytes_of_pages(const std::vector<Area>& areas) {
  uint64_t bytes = 0;
  for (const Area& area : areas)
    if (area.file == 0) bytes += bytes_of(area.range);
  return bytes;
}

// Copies those pages of the area that there are. Returns 0 or an error.
int save_area(const Region& region, SharedHeap& heap, const Area& area, std::byte* to) {
  for (uint64_t at = area.range.begin; at < area.range.end; at += kPageSize) {
    const PageId number = region.page_of(pointer(at));
    if (!heap.home_of(number) && !heap.ask_home(number)) continue;
    if (!copy_guarded(to + (at - area.range.begin), pointer(at), kPageSize)) return EFAULT;
  }
  return 0;
}

}  // namespace

long save_pages(const Region& region, SharedHeap& heap, const std::vector<Area>& areas) {
  const uint64_t bytes = bytes_of_pages(areas);
  if (bytes == 0) return 0;
  // Most of it may never be used, as of the areas.
  void* const memory = mmap(nullptr, bytes, kAll, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return -errno;
  int code = 0;
  {
    const NoHugePages none;
    const Unchanging unchanging(areas);
    auto* to = static_cast<std::byte*>(memory);
    for (const Area& area : areas) {
      if (code != 0) break;
      if (area.file != 0) continue;
      const int meanwhile = area.rights & ~PROT_WRITE;
      const bool can_read = (meanwhile & PROT_READ) != 0;
      if (!can_read) mprotect(pointer(area.range.begin), bytes_of(area.range), meanwhile | PROT_READ);
      code = save_area(region, heap, area, to);
      if (!can_read) mprotect(pointer(area.range.begin), bytes_of(area.range), meanwhile);
      to += bytes_of(area.range);
    }
  }
  if (code == 0) return static_cast<long>(reinterpret_cast<uint64_t>(memory));
  munmap(memory, bytes);
  return -code;
}

void restore_pages(long saved, const std::vector<Area>& areas) {
  const auto no_room = [] { die(127, "a forked process has no room for its memory, errno", errno); };
  auto from = static_cast<uint64_t>(saved);
  for (const Area& area : areas) {
    if (area.file != 0) continue;
    const uint64_t bytes = bytes_of(area.range);
    void* const to = pointer(area.range.begin);
    if (mremap(pointer(from), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) no_room();
    if (area.rights != kAll && mprotect(to, bytes, area.rights) != 0) no_room();
    from += bytes;
  }
}

void forget_pages(long saved, const std::vector<Area>& areas) {
  if (saved != 0) munmap(pointer(static_cast<uint64_t>(saved)), bytes_of_pages(areas));
}

long SharedMappings::attach(Area& area, int segment, int flags, const std::vector<Area>& before) {
  // A segment that the kernel would refuse is refused before anything is taken away.
  void* const trial = shmat(segment, nullptr, flags & (SHM_RDONLY | SHM_EXEC));
  if (trial == reinterpret_cast<void*>(-1)) return -errno;
  shmdt(trial);
  vacate(before);
  area.file = segments::file_of(segment);
  area.offset = 0;
  if (const long result = segments::map(area); result != 0) return result;
  of_files_.add(area);
  return 0;
}
long SharedMappings::map_for_host(Range range) {
  void* const mapped = mmap(pointer(range.begin), bytes_of(range), PROT_READ | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return mapped == MAP_FAILED ? -errno : 0;
}

long SharedMappings::detach(uint64_t, const std::vector<Area>& before) {
  std::vector<Area> parts = before;
  std::erase_if(parts, [](const Area& area) { return !segments::is_segment(area.file); });
  vacate(parts);
  return parts.empty() ? -EINVAL : 0;
}

}  // namespace multigrain::guest
