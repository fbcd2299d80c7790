// What LLVM's OpenMP tells a tool (OMPT, [OpenMP] chapter 19): its threads wait for each other inside libomp, where the
// runtime would not see it.
//
//   a parallel region   its threads begin after the thread that came to it; that one goes on after all of them
//   a barrier           a thread leaves it after all arrivals of its phase
//   a lock, critical,   a thread that gets it comes after the release that let it in
//   ordered
//   a task              begins after the task that made it; who waits for tasks goes on after all that have ended until then,
//                       of whatever parent, which is more than OpenMP says
#include <omp-tools.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "trace/record/runtime/runtime.h"

// glibc's own names, since these blocks are none of the program's.
extern "C" {
void* __libc_calloc(size_t, size_t);
void __libc_free(void*);
}

namespace multigrain::trace::record {
namespace {

// A parallel region. The clocks of a barrier are those of its last arrival in an even and in an odd phase: no thread can arrive
// in a phase before all have left the one before the last.
struct Region {
  uint64_t birth;
  uint32_t lock;
  uint64_t phase[2];  // 1 + the number of the phase that clock[i] is of
  uint64_t clock[2];
};

Region* region_of(const ompt_data_t* parallel) {
  return parallel == nullptr ? nullptr : static_cast<Region*>(parallel->ptr);
}

// Where tasks that end leave their clocks.
char g_tasks;
uint64_t address_of_tasks() {
  return reinterpret_cast<uint64_t>(&g_tasks);
}

void parallel_begin(ompt_data_t*, const ompt_frame_t*, ompt_data_t* parallel, unsigned, int, const void*) {
  auto* const region = static_cast<Region*>(__libc_calloc(1, sizeof(Region)));
  if (region == nullptr) abort();
  region->birth = publish_clock();
  parallel->ptr = region;
}

void parallel_end(ompt_data_t* parallel, ompt_data_t*, int, const void*) {
  Region* const region = region_of(parallel);
  if (region == nullptr) return;
  // The region's last barrier, which all threads have arrived at.
  advance_clock(region->clock[0] > region->clock[1] ? region->clock[0] : region->clock[1]);
  parallel->ptr = nullptr;
  __libc_free(region);
}

// A thread begins or ends its part of a region. Between two regions a thread of libomp's team waits.
void implicit_task(ompt_scope_endpoint_t endpoint, ompt_data_t* parallel, ompt_data_t* task, unsigned, unsigned index,
                   int flags) {
  if ((flags & ompt_task_initial) != 0) return;
  if (endpoint == ompt_scope_begin) {
    if (index != 0) set_running(true);
    task->value = 0;  // the phase that the thread is in
    if (const Region* const region = region_of(parallel); region != nullptr) advance_clock(region->birth);
  } else if (index != 0) {
    set_running(false);
  }
}

bool is_barrier(ompt_sync_region_t kind) {
  switch (kind) {
    case ompt_sync_region_barrier:
    case ompt_sync_region_barrier_implicit:
    case ompt_sync_region_barrier_explicit:
    case ompt_sync_region_barrier_implementation:
    case ompt_sync_region_barrier_implicit_workshare:
    case ompt_sync_region_barrier_implicit_parallel:
    case ompt_sync_region_barrier_teams:
      return true;
    default:
      return false;
  }
}

void sync_region(ompt_sync_region_t kind, ompt_scope_endpoint_t endpoint, ompt_data_t* parallel, ompt_data_t* task,
                 const void*) {
  if (kind == ompt_sync_region_taskwait || kind == ompt_sync_region_taskgroup) {
    if (endpoint == ompt_scope_end) observe_through(address_of_tasks());
    return;
  }
  // When the last barrier of a region ends, the region is over for all but its first thread.
  Region* const region = region_of(parallel);
  if (!is_barrier(kind) || region == nullptr || task == nullptr) return;
  const uint64_t phase = task->value;
  const unsigned slot = phase % 2;
  if (endpoint == ompt_scope_begin) {
    const uint64_t clock = publish_clock();
    lock_word(region->lock);
    if (region->phase[slot] != phase + 1) region->phase[slot] = phase + 1, region->clock[slot] = 0;
    if (region->clock[slot] < clock) region->clock[slot] = clock;
    unlock_word(region->lock);
    return;
  }
  lock_word(region->lock);
  const uint64_t clock = region->clock[slot];
  unlock_word(region->lock);
  ++task->value;
  advance_clock(clock);
  observe_through(address_of_tasks());  // a barrier waits for tasks, too
  record_event(raw::Kind::kBarrier, reinterpret_cast<uint64_t>(region), 0, 0);
}

// A thread adds up what those have computed that have arrived at its barrier.
void reduction(ompt_sync_region_t, ompt_scope_endpoint_t endpoint, ompt_data_t* parallel, ompt_data_t* task,
               const void*) {
  Region* const region = region_of(parallel);
  if (endpoint != ompt_scope_begin || region == nullptr || task == nullptr) return;
  lock_word(region->lock);
  const uint64_t clock = region->clock[task->value % 2];
  unlock_word(region->lock);
  advance_clock(clock);
}

void sync_region_wait(ompt_sync_region_t, ompt_scope_endpoint_t endpoint, ompt_data_t*, ompt_data_t*, const void*) {
  set_running(endpoint == ompt_scope_end);
}

void mutex_acquire(ompt_mutex_t, unsigned, unsigned, ompt_wait_id_t, const void*) {
  keep_pace();
  set_running(false);
}

// A lock, as the callbacks know it. OMPT says that a lock was released when it is free already, so that another thread may have
// it before; that thread then waits here until the release is recorded.
struct Mutex {
  uint64_t id;
  uint32_t held;
};
constexpr size_t kMutexes = 4096;
Mutex g_mutexes[kMutexes];

// Returns the lock with this number; nullptr: there are too many.
Mutex* mutex_of(uint64_t id) {
  size_t i = (id * 0x9e3779b97f4a7c15u) >> 52;
  for (size_t probes = 0; probes < kMutexes; ++probes, i = (i + 1) % kMutexes) {
    uint64_t found = __atomic_load_n(&g_mutexes[i].id, __ATOMIC_ACQUIRE);
    if (found == 0 &&
        __atomic_compare_exchange_n(&g_mutexes[i].id, &found, id, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return &g_mutexes[i];
    if (found == id) return &g_mutexes[i];
  }
  return nullptr;
}

// So often a thread looks whether a release has been recorded, before it goes on without that order.
constexpr unsigned kLooks = 100'000;

void mutex_acquired(ompt_mutex_t, ompt_wait_id_t id, const void*) {
  if (Mutex* const mutex = mutex_of(id); mutex != nullptr) {
    for (unsigned looks = 0; looks < kLooks && __atomic_exchange_n(&mutex->held, 1u, __ATOMIC_ACQ_REL) != 0; ++looks)
      sched_yield();
  }
  set_running(true);
  acquire_through(id);
}

void mutex_released(ompt_mutex_t, ompt_wait_id_t id, const void*) {
  release_through(id);
  if (Mutex* const mutex = mutex_of(id); mutex != nullptr) __atomic_store_n(&mutex->held, 0u, __ATOMIC_RELEASE);
}

void task_create(ompt_data_t*, const ompt_frame_t*, ompt_data_t* task, int flags, int, const void*) {
  if ((flags & ompt_task_explicit) != 0) task->value = publish_clock();
}

void task_schedule(ompt_data_t*, ompt_task_status_t status, ompt_data_t* next) {
  if (status == ompt_task_complete || status == ompt_task_cancel || status == ompt_task_late_fulfill ||
      status == ompt_task_detach)
    publish_through(address_of_tasks());
  // A task that goes on, an implicit one among them, has a number here that is no later clock.
  if (next != nullptr && status == ompt_task_switch) advance_clock(next->value);
}

int initialize(ompt_function_lookup_t lookup, int, ompt_data_t*) {
  const auto set = reinterpret_cast<ompt_set_callback_t>(lookup("ompt_set_callback"));
  if (set == nullptr) return 0;
  const auto on = [set](ompt_callbacks_t event, auto* function) {
    set(event, reinterpret_cast<ompt_callback_t>(function));
  };
  on(ompt_callback_parallel_begin, parallel_begin);
  on(ompt_callback_parallel_end, parallel_end);
  on(ompt_callback_implicit_task, implicit_task);
  on(ompt_callback_sync_region, sync_region);
  on(ompt_callback_sync_region_wait, sync_region_wait);
  on(ompt_callback_reduction, reduction);
  on(ompt_callback_mutex_acquire, mutex_acquire);
  on(ompt_callback_mutex_acquired, mutex_acquired);
  on(ompt_callback_mutex_released, mutex_released);
  on(ompt_callback_task_create, task_create);
  on(ompt_callback_task_schedule, task_schedule);
  return 1;  // the tool stays
}

void finalize(ompt_data_t*) {}

}  // namespace
}  // namespace multigrain::trace::record

// libomp calls this when it starts, if the program has it.
MG_RECORD_EXPORT ompt_start_tool_result_t* ompt_start_tool(unsigned, const char*) {
  using namespace multigrain::trace::record;
  static ompt_start_tool_result_t result = {initialize, finalize, {0}};
  return active() ? &result : nullptr;
}
