#include "guest/nodes/remote_areas.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/lock_guard.h"
#include "guest/nodes/segments.h"
#include "guest/nodes/shared_mappings.h"

namespace multigrain::guest {

bool RemoteAreas::take(const AreaAnswer& answer, bool& is_refused) {
  const Area& area = answer.area;
  int fd = -1;
  const bool is_segment = segments::is_segment(area.file);
  if (area.file != 0 && !is_segment) {
    const bool writes = area.is_shared && (area.rights & PROT_WRITE) != 0;
    const std::string path = fmt::format("/proc/{}/fd/{}", answer.home, SharedMappings::descriptor_of(area.file));
    fd = open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    // The home may have closed it meanwhile; then the area is another one.
    if (fd < 0 && errno == ENOENT) return false;
    // The kernel gives the files of a process that has no memory any more to root. A home that answers
    // again has memory.
    if (fd < 0 && errno == EACCES && !std::exchange(is_refused, true)) return false;
    if (fd < 0) die(1, {"cannot map a file of the program on this node: ", std::strerror(errno)});
  }
  const LockGuard hold(lock_);
  const bool is_current = answer.version >= version_;
  if (is_current) {
    // What the file's end does to a thread that uses the mapping at once is no page fault.
    if (area.file != 0) of_files_.add(area);
    const long result =
        is_segment       ? segments::map(area)
        : area.file != 0 ? map_over_view(area.range, area.rights, area.is_shared, fd, area.offset)
        : mprotect(reinterpret_cast<void*>(area.range.begin), area.range.end - area.range.begin, area.rights) != 0
            ? -errno
            : 0;
    if (result != 0)
      panic("cannot map an area of the guest on this node (errno, address)", static_cast<uint64_t>(-result),
            area.range.begin);
    known_.map(area);
  }
  if (fd >= 0) close(fd);
  return is_current;
}

std::optional<Range> RemoteAreas::try_range_around(uint64_t address) {
  if (!lock_.try_lock()) return std::nullopt;
  const auto range = known_.range_around(address);
  lock_.unlock();
  return range;
}

std::optional<Area> RemoteAreas::area_of(uint64_t address) {
  const LockGuard hold(lock_);
  const std::vector<Area> found = known_.around(address);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

uint64_t RemoteAreas::version() {
  const LockGuard hold(lock_);
  return version_;
}

void RemoteAreas::invalidate(Range range, uint64_t version) {
  const LockGuard hold(lock_);
  if (version > version_) version_ = version;
  for (const Area& area : known_.in(range)) {
    const uint64_t bytes = area.range.end - area.range.begin;
    auto* const begin = reinterpret_cast<void*>(area.range.begin);
    if (area.file != 0) {
      const PageId first = region_.page_of(begin);
      region_.view_again(first, bytes / kPageSize);
      of_files_.remove(area.range);
      rights_.watch_again(first, bytes / kPageSize);
    } else {
      mprotect(begin, bytes, PROT_NONE);
    }
  }
  known_.unmap(range);
}

}  // namespace multigrain::guest
