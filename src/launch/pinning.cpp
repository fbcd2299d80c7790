#include "launch/pinning.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <type_traits>

namespace multigrain {
namespace {

struct ProcessingUnit {
  unsigned rank_in_core;  // 0 for the first hardware thread of a core
  unsigned position;      // in the order of the topology: neighbours are close
  unsigned os_index;
};

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, decltype(&hwloc_bitmap_free)>;

// hwloc's plugins describe graphics cards and the like, and the libraries that they load take a quarter of the start of a
// run.
bool init_without_plugins(hwloc_topology_t& topology) {
  constexpr const char* kWhere = "HWLOC_PLUGINS_PATH";
  const bool is_ours = getenv(kWhere) == nullptr && setenv(kWhere, "/nonexistent", 0) == 0;
  const bool made = hwloc_topology_init(&topology) == 0;
  if (is_ours) unsetenv(kWhere);
  return made;
}

}  // namespace

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails on machines with more than CPU_SETSIZE processors.
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1u, std::thread::hardware_concurrency());
  return static_cast<unsigned>(CPU_COUNT(&set));
}

Result<std::vector<unsigned>> choose_cores(unsigned processors) {
  const unsigned available = usable_cores();
  if (processors > available)
    return fail("{} processors cannot have a core each: this process may use {}", processors, available);
  hwloc_topology_t raw = nullptr;
  if (!init_without_plugins(raw)) return fail("hwloc cannot describe this machine");
  const Topology topology(raw, &hwloc_topology_destroy);
  const Bitmap allowed(hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  static_cast<void>(hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE));
  static_cast<void>(hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE));
  if (hwloc_topology_load(raw) != 0 || allowed == nullptr ||
      hwloc_get_cpubind(raw, allowed.get(), HWLOC_CPUBIND_PROCESS) != 0)
    return fail("hwloc cannot describe this machine");

  std::vector<ProcessingUnit> units;
  std::map<hwloc_obj_t, unsigned> taken_of_core;
  for (hwloc_obj_t unit = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, nullptr); unit != nullptr;
       unit = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, unit)) {
    if (hwloc_bitmap_isset(allowed.get(), unit->os_index) == 0) continue;
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(raw, HWLOC_OBJ_CORE, unit);
    const unsigned rank = core != nullptr ? taken_of_core[core]++ : 0;
    units.push_back({rank, unit->logical_index, unit->os_index});
  }
  if (units.size() < processors)
    return fail("{} processors cannot have a core each: hwloc finds {}", processors, units.size());
  std::ranges::sort(units, {}, [](const ProcessingUnit& unit) { return std::pair(unit.rank_in_core, unit.position); });
  units.resize(processors);
  std::ranges::sort(units, {}, &ProcessingUnit::position);
  std::vector<unsigned> chosen;
  chosen.reserve(units.size());
  for (const ProcessingUnit& unit : units) chosen.push_back(unit.os_index);
  return chosen;
}

void stay_on_this_core() {
  const int core = sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace multigrain
