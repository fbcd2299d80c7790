// The functions of omp.h about threads, regions, schedules, time and places.
//
// A place is a node of the run: omp_get_num_places() says how many there are, and omp_get_place_num() on which the thread is.
#include <algorithm>
#include <ctime>

#include "openmp/memory.h"
#include "openmp/tasks.h"
#include "openmp/team.h"
#include "runtime/running.h"

namespace multigrain::openmp {
namespace {

Frame& frame() {
  return *this_thread().frame;
}

bool runs() {
  return __multigrain_is_running() != 0;
}

// Returns the thread's part of the region at a level around it, or null if there is no such level.
const Frame* ancestor(int level) {
  const Frame* at = &frame();
  if (level < 0 || level > at->level) return nullptr;
  while (at->level > level) at = at->outer;
  return at;
}

constexpr int32_t kMonotonic = INT32_MIN;  // the highest bit of omp_sched_t

}  // namespace

MG_OPENMP_BEGIN

void omp_set_num_threads(int threads) {
  if (threads > 0) frame().controls.threads = static_cast<uint32_t>(threads);
}
int omp_get_num_threads(void) {
  return static_cast<int>(frame().threads);
}
int omp_get_thread_num(void) {
  return static_cast<int>(frame().number);
}
int omp_get_max_threads(void) {
  return static_cast<int>(std::min(frame().controls.threads, frame().controls.thread_limit));
}
int omp_get_num_procs(void) {
  return static_cast<int>(__multigrain_expected_processors());
}
int omp_in_parallel(void) {
  return frame().active_level > 0 ? 1 : 0;
}
int omp_in_final(void) {
  return frame().task != nullptr && frame().task->final ? 1 : 0;
}
int omp_in_explicit_task(void) {
  return frame().task != nullptr && frame().task->parent != nullptr ? 1 : 0;
}
void omp_set_dynamic(int dynamic) {
  frame().controls.dynamic = dynamic != 0;
}
int omp_get_dynamic(void) {
  return frame().controls.dynamic ? 1 : 0;
}
// Regions inside of an active one are of one thread, whatever the program wishes.
void omp_set_nested(int) {}
int omp_get_nested(void) {
  return 0;
}
void omp_set_max_active_levels(int levels) {
  if (levels >= 0) frame().controls.max_active_levels = std::min(static_cast<uint32_t>(levels), kSupportedLevels);
}
int omp_get_max_active_levels(void) {
  return static_cast<int>(frame().controls.max_active_levels);
}
int omp_get_supported_active_levels(void) {
  return static_cast<int>(kSupportedLevels);
}
int omp_get_level(void) {
  return frame().level;
}
int omp_get_active_level(void) {
  return frame().active_level;
}
int omp_get_ancestor_thread_num(int level) {
  const Frame* const at = ancestor(level);
  return at != nullptr ? static_cast<int>(at->number) : -1;
}
int omp_get_team_size(int level) {
  const Frame* const at = ancestor(level);
  return at != nullptr ? static_cast<int>(at->threads) : -1;
}
int omp_get_thread_limit(void) {
  return static_cast<int>(std::min<uint32_t>(frame().controls.thread_limit, INT32_MAX));
}
int omp_get_max_task_priority(void) {
  return global_controls().max_task_priority;
}
int omp_get_cancellation(void) {
  return 0;
}

void omp_set_schedule(int32_t kind, int chunk) {
  Schedule& schedule = frame().controls.schedule;
  const int32_t bare = kind & ~kMonotonic;
  if (bare < 1 || bare > 4) return;
  schedule.kind = static_cast<ScheduleKind>(bare);
  schedule.monotonic = (kind & kMonotonic) != 0;
  schedule.chunk = std::max(chunk, 0);
}
// A schedule without a chunk size has one of 1, but a static one has none.
void omp_get_schedule(int32_t* kind, int* chunk) {
  const Schedule& schedule = frame().controls.schedule;
  *kind = static_cast<int32_t>(schedule.kind) | (schedule.monotonic ? kMonotonic : 0);
  const bool has_one = schedule.kind == ScheduleKind::kDynamic || schedule.kind == ScheduleKind::kGuided;
  *chunk = static_cast<int>(std::max<int64_t>(schedule.chunk, has_one ? 1 : 0));
}

// --- Time

double omp_get_wtime(void) {
  if (runs()) return static_cast<double>(mg_time_ns()) * 1e-9;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
double omp_get_wtick(void) {
  return 1e-9;
}

// --- Places

int omp_get_proc_bind(void) {
  return 0;
}
int omp_get_num_places(void) {
  return runs() ? static_cast<int>(mg_nodes()) : 1;
}
int omp_get_place_num_procs(int place) {
  return place >= 0 && place < omp_get_num_places() && runs() ? static_cast<int>(mg_processors_per_node()) : 0;
}
void omp_get_place_proc_ids(int place, int* processors) {
  const int each = omp_get_place_num_procs(place);
  for (int i = 0; i < each; ++i) processors[i] = place * each + i;
}
int omp_get_place_num(void) {
  return runs() ? static_cast<int>(mg_node()) : 0;
}
int omp_get_partition_num_places(void) {
  return omp_get_num_places();
}
void omp_get_partition_place_nums(int* places) {
  for (int i = 0; i < omp_get_num_places(); ++i) places[i] = i;
}

// --- Leagues of teams

int omp_get_num_teams(void) {
  return this_thread().teams;
}
int omp_get_team_num(void) {
  return this_thread().team_number;
}
void omp_set_num_teams(int teams) {
  if (teams >= 0) global_controls().teams = static_cast<uint32_t>(teams);
}
int omp_get_max_teams(void) {
  return static_cast<int>(global_controls().teams);
}
void omp_set_teams_thread_limit(int limit) {
  if (limit >= 0) global_controls().teams_thread_limit = static_cast<uint32_t>(limit);
}
int omp_get_teams_thread_limit(void) {
  return static_cast<int>(global_controls().teams_thread_limit);
}

// --- The environment, tools and pauses

void omp_display_env(int verbose) {
  display_environment(frame().controls, verbose != 0);
}
// No tool is there.
int omp_control_tool(int, int, void*) {
  constexpr int kNoTool = -2;
  return kNoTool;
}
// Workers stay for the next region.
int omp_pause_resource(int, int) {
  return 0;
}
int omp_pause_resource_all(int) {
  return 0;
}

MG_OPENMP_END

}  // namespace multigrain::openmp
