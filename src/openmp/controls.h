// The internal control variables of OpenMP, what environment variables make of them, and what omp_display_env prints.
#pragma once

#include <cstdint>

namespace multigrain::openmp {

enum class ScheduleKind : int32_t { kStatic = 1, kDynamic = 2, kGuided = 3, kAuto = 4 };

// A schedule(runtime) loop's schedule. `chunk` is 0 if none was given.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kStatic;
  bool monotonic = false;
  int64_t chunk = 0;

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The variables that each implicit task has of its own; a region's threads begin with those of its master.
struct Controls {
  uint32_t threads = 1;  // of the next region
  uint32_t max_active_levels = 1;
  uint32_t thread_limit = UINT32_MAX;
  bool dynamic = false;
  int32_t default_device = 0;
  uintptr_t default_allocator = 1;
  Schedule schedule;

  friend bool operator==(const Controls&, const Controls&) = default;
};

// Those that the whole program has.
struct GlobalControls {
  uint32_t teams = 0;  // 0: one
  uint32_t teams_thread_limit = 0;
  int32_t max_task_priority = 0;
};

// This library serializes regions inside of an active one.
inline constexpr uint32_t kSupportedLevels = 1;

// Reads the environment at the first call, and says on standard error of node 0 what in it makes no sense. May be called
// from any thread at any time.
const Controls& initial_controls();
GlobalControls& global_controls();

void display_environment(const Controls& controls, bool verbose);

}  // namespace multigrain::openmp
