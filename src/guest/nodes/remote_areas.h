// The guest's areas on a node that is not the home: those that its threads have needed so far, which it has mapped.
#pragma once

#include <optional>

#include "base/spin_lock.h"
#include "guest/areas.h"
#include "guest/nodes/areas_of_files.h"
#include "guest/nodes/messages.h"
#include "memory/access_rights.h"
#include "memory/region.h"

namespace multigrain::guest {

class RemoteAreas {
 public:
  RemoteAreas(Region& region, AccessRights& rights, AreasOfFiles& of_files, const std::vector<Range>& allowed)
      : region_(region), rights_(rights), of_files_(of_files), known_(allowed, allowed.back()) {}

  // Maps what the home, a process of this machine, has answered, unless the area may be another one by now. Returns
  // false if the caller has to ask again. `is_refused` says whether the kernel has refused the home's file before: it
  // does so while the home ends, and then the home answers no more. A message handler must not call this.
  bool take(const AreaAnswer& answer, bool& is_refused) MG_EXCLUDES(lock_);
  // Returns a number that changes with every range that is invalidated.
  uint64_t version() MG_EXCLUDES(lock_);
  // Must be called before the home changes the areas of the range: nothing is mapped there afterwards. A message
  // handler may call this.
  void invalidate(Range range, uint64_t version) MG_EXCLUDES(lock_);
  // Returns the area of this address, if it is mapped here. What the answer says was true at one moment: no area is
  // being mapped or invalidated then.
  [[nodiscard]] std::optional<Area> area_of(uint64_t address) MG_EXCLUDES(lock_);
  // Returns where the area of this address begins and ends, if it is mapped here; nothing if it is not, or if the lock
  // is not free.
  [[nodiscard]] std::optional<Range> try_range_around(uint64_t address) MG_EXCLUDES(lock_);

 private:
  Region& region_;
  AccessRights& rights_;
  AreasOfFiles& of_files_;
  SpinLock lock_;
  Areas known_ MG_GUARDED_BY(lock_);
  uint64_t version_ MG_GUARDED_BY(lock_) = 0;
};

}  // namespace multigrain::guest
