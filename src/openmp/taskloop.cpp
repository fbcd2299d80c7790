// taskloop: a loop whose iterations are divided over tasks.
#include <algorithm>

#include "openmp/loop_math.h"
#include "openmp/tasks.h"

namespace multigrain::openmp {
namespace {

// Says how many tasks there are to be, as the clauses ask.
enum : int32_t { kNoClause = 0, kGrainsize = 1, kNumTasks = 2 };
constexpr uint64_t kTasksPerThread = 10;

using Duplicate = void (*)(CompiledTask* to, CompiledTask* from, int32_t is_last);

struct TaskLoop {
  CompiledTask* pattern;
  uint64_t* lower;  // in the pattern
  uint64_t* upper;
  int64_t step;
  int32_t clause;
  uint64_t value;  // of the clause
  bool strict;
  Duplicate duplicate;
};

uint64_t count_tasks(const TaskLoop& loop, uint64_t iterations, uint32_t threads) {
  const uint64_t value = std::max<uint64_t>(loop.value, 1);
  switch (loop.clause) {
    case kGrainsize:
      return loop.strict ? count_chunks(iterations, value) : std::max<uint64_t>(1, iterations / value);
    case kNumTasks:
      return std::min(value, iterations);
    default:
      return std::min(iterations, threads * kTasksPerThread);
  }
}

uint64_t* same_place(uint64_t* address, CompiledTask* from, CompiledTask* to) {
  return reinterpret_cast<uint64_t*>(reinterpret_cast<std::byte*>(to) +
                                     (reinterpret_cast<std::byte*>(address) - reinterpret_cast<std::byte*>(from)));
}

void run(Thread& thread, const TaskLoop& loop, bool deferred) {
  Task& pattern = *Task::of(loop.pattern);
  const auto first = static_cast<int64_t>(*loop.lower), last = static_cast<int64_t>(*loop.upper);
  const uint64_t iterations = count_iterations<int64_t>(first, last, loop.step);
  const LoopBounds<int64_t> bounds{first, loop.step};
  const uint64_t tasks = iterations == 0 ? 0 : count_tasks(loop, iterations, thread.frame->threads);
  for (uint64_t i = 0; i < tasks; ++i) {
    Interval part = part_of(iterations, i, tasks);
    if (loop.clause == kGrainsize && loop.strict) part = {i * loop.value, std::min(iterations, (i + 1) * loop.value)};
    Task& task = *duplicate_task(*thread.frame, pattern);
    CompiledTask* const compiled = task.compiled();
    *same_place(loop.lower, loop.pattern, compiled) = static_cast<uint64_t>(bounds.value(part.begin));
    *same_place(loop.upper, loop.pattern, compiled) = static_cast<uint64_t>(bounds.value(part.end - 1));
    if (loop.duplicate != nullptr) loop.duplicate(compiled, loop.pattern, part.end == iterations ? 1 : 0);
    if (deferred)
      hand_over(thread, task);
    else
      execute_now(thread, task);
  }
  drop_task(thread, pattern);
}

void taskloop(const TaskLoop& loop, bool deferred, bool nogroup) {
  Thread& thread = this_thread();
  if (!nogroup) begin_group(*thread.frame);
  run(thread, loop, deferred);
  if (!nogroup) end_group(thread);
}

}  // namespace

MG_OPENMP_BEGIN

void __kmpc_taskloop(Ident*, int32_t, CompiledTask* task, int32_t condition, uint64_t* lower, uint64_t* upper,
                     int64_t step, int32_t nogroup, int32_t clause, uint64_t value, void* duplicate) {
  taskloop({task, lower, upper, step, clause, value, false, reinterpret_cast<Duplicate>(duplicate)}, condition != 0,
           nogroup != 0);
}

void __kmpc_taskloop_5(Ident*, int32_t, CompiledTask* task, int32_t condition, uint64_t* lower, uint64_t* upper,
                       int64_t step, int32_t nogroup, int32_t clause, uint64_t value, int32_t strict, void* duplicate) {
  taskloop({task, lower, upper, step, clause, value, strict != 0, reinterpret_cast<Duplicate>(duplicate)},
           condition != 0, nogroup != 0);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
