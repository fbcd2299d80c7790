// This says which allocation an address belongs to, as the trace goes on.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trace/trace.h"

namespace multigrain::trace {

struct Allocation {
  uint64_t address;
  uint64_t bytes;
  uint32_t name;
  SiteId site;
};

// These are the allocations so far, by number in the order of their events. Number 0 stands for memory that no event
// covers (stacks, or globals that the recorder does not name) and begins at address 0.
class Allocations {
 public:
  static constexpr uint32_t kNone = 0;

  // Takes an event of kind kAllocate or kFree, and ignores events of other kinds. An allocation ends the allocations
  // that it overlaps, whose kFree must be missing. Returns the number of the allocation that begins, or kNone.
  uint32_t consume(const Event& event);
  // Returns the allocation that the address is in now. After kFree that is still the old one, until the memory is
  // allocated again.
  [[nodiscard]] uint32_t find(uint64_t address) const;
  [[nodiscard]] const Allocation& operator[](uint32_t number) const { return all_[number]; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(all_.size()); }

 private:
  std::vector<Allocation> all_ = {{0, 0, 0, 0}};
  std::map<uint64_t, uint32_t> by_address_;  // these do not overlap, except that an old one may end inside a newer one
};

}  // namespace multigrain::trace
