// The mappings behind the guest's areas: what the areas are to the kernel. For a guest on one node they are the
// kernel's own mappings, at the same addresses (PrivateMappings); on several nodes they are pages under a protocol
// (nodes/shared_mappings.h).
//
// AddressSpace decides what is mapped where. It calls these functions with its lock held and with ranges in the guest's
// part of the address space. Each returns 0 or -errno.
#pragma once

#include <cstdint>
#include <vector>

#include "guest/areas.h"

namespace multigrain::guest {

class Mappings {
 public:
  virtual ~Mappings() = default;

  // Does what mmap() does with MAP_FIXED. `area` is what will be in the account; its file and offset are set here if
  // they matter. `before` is what the account has there now.
  virtual long map(Area& area, int flags, int fd, uint64_t offset, const std::vector<Area>& before) = 0;
  virtual long unmap(Range range, uint64_t length, const std::vector<Area>& before) = 0;
  // `key` is a protection key, or -1. The areas of `before` have the rights from before.
  virtual long protect(Range range, uint64_t length, int rights, int key, std::vector<Area>& before) = 0;
  // Does what mremap() does. `to` matters with MREMAP_FIXED alone; the range there is free, or is what `replaced` has
  // and may be replaced.
  virtual long remap(Range old, uint64_t old_length, uint64_t new_length, int flags, uint64_t to,
                     const std::vector<Area>& before, const std::vector<Area>& replaced) = 0;
  // Does what madvise(MADV_DONTNEED) does.
  virtual long discard(Range range, const std::vector<Area>& before) = 0;
  // attach() does what shmat() does, at the area's addresses, and detach() what shmdt() does with all that is left
  // there of a segment. `before` is what the account has at these addresses.
  virtual long attach(Area& area, int segment, int flags, const std::vector<Area>& before) = 0;
  virtual long detach(uint64_t address, const std::vector<Area>& before) = 0;
  // Maps memory of this process alone for code of the host. The range is not the guest's.
  virtual long map_for_host(Range range) = 0;
  // Returns whether the instructions of an area that cannot be written are this process's own, so that it
  // may change them.
  [[nodiscard]] virtual bool has_own_code(const Area& area) const = 0;
};

// Maps the guest's areas as memory of this process.
class PrivateMappings final : public Mappings {
 public:
  long map(Area& area, int flags, int fd, uint64_t offset, const std::vector<Area>& before) override;
  long unmap(Range range, uint64_t length, const std::vector<Area>& before) override;
  long protect(Range range, uint64_t length, int rights, int key, std::vector<Area>& before) override;
  long remap(Range old, uint64_t old_length, uint64_t new_length, int flags, uint64_t to,
             const std::vector<Area>& before, const std::vector<Area>& replaced) override;
  long discard(Range range, const std::vector<Area>& before) override;
  long attach(Area& area, int segment, int flags, const std::vector<Area>& before) override;
  long detach(uint64_t address, const std::vector<Area>& before) override;
  long map_for_host(Range range) override;
  [[nodiscard]] bool has_own_code(const Area& area) const override { return !area.is_shared; }
};

}  // namespace multigrain::guest
