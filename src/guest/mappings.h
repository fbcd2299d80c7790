// What the guest's areas are to the system: the mappings behind them. Of a guest on one node these are the system's own,
// at the same addresses (PrivateMappings); on several nodes they are pages under a protocol (nodes/shared_mappings.h).
//
// AddressSpace decides what is mapped where, and calls these with its lock held and with ranges that are in the guest's
// part of the address space. Each returns 0 or -errno.
#pragma once

#include <cstdint>
#include <vector>

#include "guest/areas.h"

namespace multigrain::guest {

class Mappings {
 public:
  virtual ~Mappings() = default;

  // As mmap() with MAP_FIXED. `area`: what will be in the account, whose file and offset are set here if they matter.
  // `before`: what the account has there now.
  virtual long map(Area& area, int flags, int fd, uint64_t offset, const std::vector<Area>& before) = 0;
  virtual long unmap(Range range, uint64_t length, const std::vector<Area>& before) = 0;
  // `key`: a protection key, or -1. The areas' rights are those from before.
  virtual long protect(Range range, uint64_t length, int rights, int key, std::vector<Area>& before) = 0;
  // As mremap(): `to` matters with MREMAP_FIXED alone, and the range there is free or may be replaced (`replaced`).
  virtual long remap(Range old, uint64_t old_length, uint64_t new_length, int flags, uint64_t to,
                     const std::vector<Area>& before, const std::vector<Area>& replaced) = 0;
  // As madvise(MADV_DONTNEED).
  virtual long discard(Range range, const std::vector<Area>& before) = 0;
  // As shmat() at the area's addresses, and shmdt() of what is left there of a segment. `before`: what is at these addresses.
  virtual long attach(Area& area, int segment, int flags, const std::vector<Area>& before) = 0;
  virtual long detach(uint64_t address, const std::vector<Area>& before) = 0;
  // Memory of this process alone for code of the host; the range is not the guest's.
  virtual long map_for_host(Range range) = 0;
  // Whether the instructions of an area that cannot be written are this process's own, so that it may change them.
  [[nodiscard]] virtual bool has_own_code(const Area& area) const = 0;
};

// The memory of this process.
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
